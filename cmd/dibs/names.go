package main

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/dashboard/view"
	"github.com/dibslock/dibs/driver"
	"github.com/spf13/cobra"
)

// The environment variables that describe a lock, for the command that runs under it and for renew
// and release. A name can contain any character, so several names are a JSON array.
const (
	nameVar   = "DIBS_NAME"   // the first name
	namesVar  = "DIBS_NAMES"  // all names
	tokenVar  = "DIBS_TOKEN"  // the owner token
	fenceVar  = "DIBS_FENCE"  // the first name's fence
	fencesVar = "DIBS_FENCES" // all names' fences, in the names' order
)

// namesAndCommand splits NAME… -- COMMAND. Flags may precede and follow the names.
func namesAndCommand(c *cobra.Command, args []string) (names, command []string, err error) {
	dash := c.ArgsLenAtDash()
	if dash == 0 && len(args) > 1 {
		// dibs run -- -NAME -- COMMAND
		if second := slices.Index(args, "--"); second > 0 {
			args, dash = slices.Delete(slices.Clone(args), second, second+1), second
		}
	}
	switch {
	case dash > 0:
		return args[:dash], args[dash:], nil
	case dash == 0 || len(args) == 0:
		return nil, nil, usage("no NAME: %s", c.UseLine())
	case len(args) > 1 && !c.Flags().Changed("command"):
		return nil, nil, usage("write -- before the command: %s %s -- %s", c.CommandPath(), args[0], strings.Join(args[1:], " "))
	}
	return args, nil, nil
}

func checkNames(names []string) error {
	for i, name := range names {
		if err := driver.CheckName(name); err != nil {
			return err
		}
		if slices.Contains(names[:i], name) {
			return usage("%s: %q occurs twice", view.Quoted(names), name)
		}
	}
	return nil
}

// lockVars returns the variables to describe a lock. They are always all set, so that none is left
// from an outer or earlier lock.
func lockVars(lease *dibs.Lease, names []string) []string {
	return []string{
		nameVar + "=" + names[0],
		namesVar + "=" + asJSON(names),
		tokenVar + "=" + string(lease.Token()),
		fenceVar + "=" + strconv.FormatUint(lease.FenceOf(names[0]), 10),
		fencesVar + "=" + asJSON(fencesOf(lease, names)),
	}
}

func fencesOf(lease *dibs.Lease, names []string) (fences []uint64) {
	for _, name := range names {
		fences = append(fences, lease.FenceOf(name))
	}
	return fences
}

// namesIn returns the names in the environment, or none.
func namesIn(env environment) (names []string, err error) {
	if text := env.get(namesVar); text != "" {
		if err := json.Unmarshal([]byte(text), &names); err != nil {
			return nil, usage("%s=%q: want a JSON array of names", namesVar, text)
		}
		return names, nil
	}
	if name := env.get(nameVar); name != "" {
		return []string{name}, nil
	}
	return nil, nil
}

func asJSON(v any) string {
	var text strings.Builder
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	_ = e.Encode(v) // cannot fail: names and numbers
	return strings.TrimSuffix(text.String(), "\n")
}
