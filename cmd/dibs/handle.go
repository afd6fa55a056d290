package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/dashboard/view"
	"github.com/dibslock/dibs/driver"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// A handle is the output of acquire and hold. The token is enough to renew and release the lock.
type handle struct {
	Schema int      `json:"schema"`
	Names  []string `json:"names"`
	Token  string   `json:"token"`
	Fence  uint64   `json:"fence"`
	Fences []uint64 `json:"fences,omitempty"` // if there are several names
	TTL    int64    `json:"ttl_ms"`
}

func handleOf(lease *dibs.Lease, j *lockRequest) handle {
	h := handle{Schema: view.Schema, Names: j.names, Token: string(lease.Token()), Fence: lease.FenceOf(j.names[0]), TTL: time.Duration(j.ttl).Milliseconds()}
	if len(j.names) > 1 {
		h.Fences = fencesOf(lease, j.names)
	}
	return h
}

// printHandle prints hold's output.
func printHandle(con *console, lease *dibs.Lease, j *lockRequest) error {
	if con.json {
		return view.WriteLine(con.out, handleOf(lease, j))
	}
	_, err := fmt.Fprintln(con.out, "held", string(lease.Token()), lease.FenceOf(j.names[0]))
	return err
}

func acquireCmd(a *app) *cobra.Command {
	j := new(lockRequest)
	c := &cobra.Command{
		Use:   "acquire [flags] NAME…",
		Short: "Acquire a lock and exit; it expires after --ttl unless renewed",
		Long: `Acquire NAME, print how to renew and release it, and exit. The lock is not
renewed automatically: it expires after --ttl, unless dibs renew is called
before. Prefer dibs run where possible: it is safer.

The output is meant for eval in a shell. It sets DIBS_NAME, DIBS_TOKEN and
DIBS_FENCE, and the JSON arrays DIBS_NAMES and DIBS_FENCES; dibs renew and dibs
release read the names and the token. Write it as below:
eval "$(dibs acquire …)" loses the exit code, and the script goes on without the
lock. With --json the output is an object.

There is no --min-hold: dibs release frees the name at once.`,
		Example: `  held=$(dibs acquire --ttl 10m deploy) || exit
  eval "$held"
  ./build.sh && dibs renew && ./deploy.sh
  dibs release`,
		Args: argCount(1, math.MaxInt),
		RunE: func(_ *cobra.Command, args []string) error { return acquire(a, j, args) },
	}
	j.flags(c.Flags(), a.con)
	return c
}

func acquire(a *app, j *lockRequest, names []string) error {
	if err := j.check(a, names); err != nil {
		return err
	}
	// On success the client is not closed: this would release the lock.
	s, err := a.connect(untilTTL, dibs.NoRenew())
	if err != nil {
		return err
	}
	abort := func(err error) error {
		s.monitor.Close()
		return s.store.explain(errors.Join(err, s.close()))
	}
	lease, err := s.waitForLock(j)
	if err != nil {
		return abort(err)
	}
	// A lease granted by hand-off starts with a shorter TTL.
	if err := lease.Extend(context.Background(), time.Duration(j.ttl)); err != nil {
		return abort(err)
	}
	if a.con.json {
		err = view.WriteLine(a.con.out, handleOf(lease, j))
	} else {
		_, err = fmt.Fprintln(a.con.out, exportLine(lockVars(lease, j.names)))
	}
	if err != nil { // the caller has no token: release the lock
		return abort(err)
	}
	s.monitor.Close()
	return s.store.close()
}

// exportLine returns a POSIX shell command that sets variables.
func exportLine(vars []string) string {
	line := "export"
	for _, v := range vars {
		name, value, _ := strings.Cut(v, "=")
		line += " " + name + "=" + shellQuoted(value)
	}
	return line
}

// shellQuoted returns s as a single quoted word for a POSIX shell.
func shellQuoted(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// An attachFlags holds the flags for renew and release, which use a lock acquired by dibs acquire.
type attachFlags struct {
	token   string
	flagSet func(flag string) bool
}

func (o *attachFlags) flags(f *pflag.FlagSet) {
	o.flagSet = f.Changed
	f.StringVar(&o.token, "token", "", "owner token; visible in ps (default $DIBS_TOKEN, which is not)")
}

// handles returns the handle of each name.
func (o *attachFlags) handles(env environment, args []string) ([]dibs.Handle, error) {
	names, token := args, o.token
	if len(names) == 0 {
		var err error
		if names, err = namesIn(env); err != nil {
			return nil, err
		}
	}
	if !o.flagSet("token") {
		token = env.get(tokenVar)
	}
	switch {
	case o.flagSet("token") && token == "":
		return nil, usage("--token is empty")
	case len(names) == 0:
		return nil, usage("no NAME and no DIBS_NAMES")
	case token == "":
		return nil, usage("no --token and no DIBS_TOKEN: dibs acquire prints it")
	}
	if err := checkNames(names); err != nil {
		return nil, err
	}
	var all []dibs.Handle
	for _, name := range names {
		all = append(all, dibs.NewHandle(name, token))
	}
	return all, nil
}

func renewCmd(a *app) *cobra.Command {
	o := new(attachFlags)
	ttl := durationFlag(30 * time.Second)
	c := &cobra.Command{
		Use:   "renew [flags] [NAME…]",
		Short: "Renew a lock that dibs acquire has acquired",
		Long: `Extend the lease on NAME: it then lasts for at least --ttl from now. This never
shortens a lease and never restores one that has ended: that is exit code 76.`,
		Example: `  dibs renew --ttl 10m          # the lock in DIBS_NAMES and DIBS_TOKEN
  DIBS_TOKEN=… dibs renew deploy`,
		Args: argCount(0, math.MaxInt),
		RunE: func(_ *cobra.Command, args []string) error {
			if d := time.Duration(ttl); d < driver.MinTTL || d > driver.MaxTTL {
				return usage("--ttl %v: want %v to %v", d, driver.MinTTL, driver.MaxTTL)
			}
			return o.forEach(a, args, func(*dibs.Lease) error { return nil }, dibs.TTL(time.Duration(ttl)))
		},
	}
	o.flags(c.Flags())
	c.Flags().Var(&ttl, "ttl", "lease duration from now")
	return c
}

func releaseCmd(a *app) *cobra.Command {
	o := new(attachFlags)
	c := &cobra.Command{
		Use:   "release [flags] [NAME…]",
		Short: "Release a lock that dibs acquire has acquired",
		Long: `Release NAME and hand it off to the first waiter. If the token no longer holds
NAME, nothing changes and the exit code is 76.`,
		Example: `  dibs release                  # the lock in DIBS_NAMES and DIBS_TOKEN
  DIBS_TOKEN=… dibs release deploy`,
		Args: argCount(0, math.MaxInt),
		RunE: func(_ *cobra.Command, args []string) error {
			return o.forEach(a, args, (*dibs.Lease).Unlock)
		},
	}
	o.flags(c.Flags())
	return c
}

// forEach attaches to each name, and calls do. It does not close the client: that would
// release what renew has extended.
func (o *attachFlags) forEach(a *app, args []string, do func(*dibs.Lease) error, options ...dibs.Option) error {
	s, err := a.stores.open(untilTTL)
	if err != nil {
		return err
	}
	locks := s.client(dibs.NoRenew())
	handles, err := o.handles(a.env, args)
	if err != nil {
		return errors.Join(err, s.close())
	}
	var errs []error
	for _, handle := range handles {
		lease, err := locks.Attach(context.Background(), handle, options...)
		if err == nil {
			err = do(lease)
		}
		errs = append(errs, err)
	}
	return s.explain(errors.Join(append(errs, s.close())...))
}
