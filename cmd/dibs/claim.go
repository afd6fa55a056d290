package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dibslock/dibs"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// A claim is what a verb wants to hold, and how long it waits for that.
type claim struct {
	names   []string
	shared  bool
	slots   int
	permits int
	try     bool
	wait    span
	ttl     span
	minHold span
	label   string

	busyCode int
	skipOK   bool
}

// flags gives a verb all flags of a claim.
func (c *claim) flags(f *pflag.FlagSet) {
	c.leaseFlags(f)
	f.BoolVar(&c.shared, "shared", false, "hold it together with others that do, and alone against those that do not")
	f.IntVar(&c.slots, "slots", 0, "let up to so many hold it at once: the same number for all")
	f.IntVar(&c.permits, "permits", 1, "how many of the slots to take")
	f.BoolVarP(&c.try, "try", "n", false, "do not wait")
	f.VarP(&c.wait, "wait", "w", "wait so long at most: 90s, 1m30s, or a number of seconds; 0 is --try (default: as long as it takes)")
	f.Var(&c.minHold, "min-hold", "keep the name taken for so long at least: for cron on machines whose clocks differ")
	f.IntVarP(&c.busyCode, "busy-code", "E", exitBusy, "exit code if the name is taken")
	f.BoolVar(&c.skipOK, "skip-ok", false, "exit 0 if the name is taken: somebody else does it")
}

// leaseFlags are those of whatever is held.
func (c *claim) leaseFlags(f *pflag.FlagSet) {
	c.ttl, c.wait, c.permits, c.busyCode = span(30*time.Second), forever, 1, exitBusy
	f.Var(&c.ttl, "ttl", "after a crash the name is free when so long has passed")
	f.StringVar(&c.label, "label", "", "what others see of you, beside host and process")
}

// options are those of the flags.
func (c *claim) options() []dibs.Option {
	options := []dibs.Option{dibs.TTL(time.Duration(c.ttl)), dibs.MinHold(time.Duration(c.minHold)), dibs.Label(c.label)}
	switch {
	case c.try:
		options = append(options, dibs.Wait(0))
	case c.wait != forever:
		options = append(options, dibs.Wait(time.Duration(c.wait)))
	}
	return options
}

// name reads the names, one or several with commas between.
func (c *claim) name(arg string) error {
	c.names = strings.Split(arg, ",")
	switch {
	case len(c.names) > 1 && (c.shared || c.slots > 0):
		return usage("%s: several names are held alone: --shared and --slots are for one", quoted(c.names))
	case c.shared && c.slots > 0:
		return usage("--shared and --slots: one of them")
	case c.slots < 0:
		return usage("--slots %d: want 1 or more", c.slots)
	case c.slots == 0 && c.permits != 1:
		return usage("--permits is for --slots")
	case c.busyCode < 1 || c.busyCode > 255:
		return usage("--busy-code %d: want 1 to 255", c.busyCode)
	}
	return checkNames(c.names)
}

func checkNames(names []string) error {
	for i, name := range names {
		if err := dibs.CheckName(name); err != nil {
			return err
		}
		if slices.Contains(names[:i], name) {
			return usage("%s: %q twice", quoted(names), name)
		}
	}
	return nil
}

func quoted(names []string) string {
	var q []string
	for _, name := range names {
		q = append(q, strconv.Quote(name))
	}
	return strings.Join(q, ", ")
}

// lock waits until the names are held, and says whom it waits for. A signal ends that.
func (a *app) lock(locks *dibs.Client, c *claim) (*dibs.Lease, error) {
	if err := a.nested(locks, c); err != nil {
		return nil, err
	}
	ctx, stop := a.patient()
	p := a.progress(locks, c.names[0])
	defer p.end()
	lease, err := take(ctx, locks, c, append(c.options(), dibs.Observe(p.hooks())))
	signalled := stop()
	var busy *dibs.BusyError
	switch {
	case signalled != nil && err == nil:
		return nil, errors.Join(signalled, lease.Unlock())
	case signalled != nil:
		return nil, signalled
	case errors.As(err, &busy):
		return nil, c.busy(busy)
	}
	return lease, err
}

func take(ctx context.Context, locks *dibs.Client, c *claim, options []dibs.Option) (*dibs.Lease, error) {
	name := c.names[0]
	switch {
	case len(c.names) > 1:
		return locks.All(c.names...).Lock(ctx, options...)
	case c.shared:
		return locks.RWMutex(name).RLock(ctx, options...)
	case c.slots > 0:
		return locks.Semaphore(name, c.slots).Acquire(ctx, c.permits, options...)
	}
	return locks.Mutex(name).Lock(ctx, options...)
}

// busy tells who is in the way: not by a whole token, which lets others release.
func (c *claim) busy(e *dibs.BusyError) error {
	if c.skipOK {
		return codeError{}
	}
	text := fmt.Sprintf("%q is taken", e.Name)
	if e.Holder != "" {
		text += ": held by " + ownerOf(e.Holder).String()
	}
	switch {
	case e.Remaining < 0:
		text += ", and never expires: no lock of dibs; see dibs show"
	case e.Ahead == 1:
		text += ", and 1 waits"
	case e.Ahead > 1:
		text += fmt.Sprintf(", and %d wait", e.Ahead)
	}
	if c.wait > 0 && c.wait != forever {
		text += fmt.Sprintf("; waited %v", time.Duration(c.wait))
	}
	return exitWith(c.busyCode, errors.New(text))
}

// A span is a duration on the command line: as Go writes it, or a number of seconds.
type span time.Duration

const forever span = -1

// String implements pflag.Value.
func (s *span) String() string {
	if *s == forever || *s == 0 {
		return ""
	}
	return time.Duration(*s).String()
}

// Set implements pflag.Value.
func (s *span) Set(text string) error {
	d, err := time.ParseDuration(text)
	if seconds, failed := strconv.ParseFloat(text, 64); failed == nil {
		d, err = time.Duration(seconds*float64(time.Second)), nil
	}
	if err != nil || d < 0 || d > longestSpan {
		return fmt.Errorf("want a duration such as 90s, 1m30s or 1.5, up to %v", longestSpan)
	}
	*s = span(d)
	return nil
}

// longestSpan keeps sums of durations far from overflowing.
const longestSpan = 10 * 365 * 24 * time.Hour

// Type implements pflag.Value.
func (s *span) Type() string { return "duration" }

// nameAndCommand takes NAME -- COMMAND apart. Flags may stand on both sides of NAME.
func nameAndCommand(c *cobra.Command, args []string) (name string, command []string, err error) {
	switch dash := c.ArgsLenAtDash(); {
	case dash == 1 && len(args) > 1:
		return args[0], args[1:], nil
	case dash < 0 && len(args) > 1:
		return "", nil, usage("write -- before the command: %s %s -- %s", c.CommandPath(), args[0], strings.Join(args[1:], " "))
	case len(args) == 0 || dash == 0:
		return "", nil, usage("no NAME: %s", c.UseLine())
	case dash > 1:
		return "", nil, usage("one NAME, with commas for several: %s", strings.Join(args[:dash], ","))
	}
	return args[0], nil, nil
}
