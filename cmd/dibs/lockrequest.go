package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/quorum"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// A lockRequest holds the flags of a lock: the names, the mode, and how long to wait.
type lockRequest struct {
	names   []string
	shared  bool
	slots   int
	permits int
	try     bool
	wait    durationFlag
	ttl     durationFlag
	minHold durationFlag
	label   string

	busyCode int
	skipOK   bool
	verbose  bool

	flagSet func(flag string) bool
}

// flags adds all flags of a lock request to f.
func (c *lockRequest) flags(f *pflag.FlagSet) {
	c.leaseFlags(f)
	f.BoolVar(&c.shared, "shared", false, "hold NAME together with other shared holders; exclude all others")
	f.IntVar(&c.slots, "slots", 0, "allow up to `N` concurrent holders; use the same N everywhere")
	f.IntVar(&c.permits, "permits", 1, "number `N` of slots to acquire")
	f.BoolVarP(&c.try, "try", "n", false, "do not wait")
	f.VarP(&c.wait, "wait", "w", "longest wait, such as 90s, 1m30s or a number of seconds; 0 means --try (default: no limit)")
	f.Var(&c.minHold, "min-hold", "least time that NAME stays unavailable, also after COMMAND ends; for cron on hosts whose clocks differ (default 0)")
	f.IntVarP(&c.busyCode, "busy-code", "E", exitBusy, "exit code when NAME is held")
	f.BoolVar(&c.skipOK, "skip-ok", false, "exit with 0 and print nothing when NAME is held")
}

// leaseFlags adds the flags of a lease to f and sets the defaults of all flags.
func (c *lockRequest) leaseFlags(f *pflag.FlagSet) {
	c.ttl, c.wait, c.permits, c.busyCode, c.flagSet = durationFlag(30*time.Second), noLimit, 1, exitBusy, f.Changed
	f.Var(&c.ttl, "ttl", "lease duration: how long the lock survives a crash")
	f.StringVar(&c.label, "label", "", "text shown to others beside host and process ID")
	f.BoolVarP(&c.verbose, "verbose", "v", false, "also report waiting, acquired and released")
}

// options returns the options that the flags describe.
func (c *lockRequest) options() []dibs.Option {
	options := []dibs.Option{dibs.TTL(time.Duration(c.ttl)), dibs.MinHold(time.Duration(c.minHold)), dibs.Label(c.label)}
	switch {
	case c.try:
		options = append(options, dibs.Wait(0))
	case c.wait != noLimit:
		options = append(options, dibs.Wait(time.Duration(c.wait)))
	}
	return options
}

// check parses the names, which are separated by commas, and validates the flags. Its
// errors are usage errors that name the flag.
func (c *lockRequest) check(a *app, arg string) error {
	c.names, a.verbose = strings.Split(arg, ","), c.verbose
	minHold, ttl := time.Duration(c.minHold), time.Duration(c.ttl)
	switch {
	case c.verbose && a.quiet:
		return usage("--verbose and --quiet exclude each other")
	case len(c.names) > 1 && (c.shared || c.flagSet("slots")):
		return usage("%s: several names are held exclusively: --shared and --slots need a single name", quoted(c.names))
	case c.shared && c.flagSet("slots"):
		return usage("--shared and --slots exclude each other")
	case c.flagSet("slots") && (c.slots < 1 || c.slots > driver.Unlimited):
		return usage("--slots %d: want 1 to %d", c.slots, driver.Unlimited)
	case c.flagSet("permits") && !c.flagSet("slots"):
		return usage("--permits needs --slots")
	case c.slots > 0 && (c.permits < 1 || c.permits > c.slots):
		return usage("--permits %d: want 1 to %d, the number of --slots", c.permits, c.slots)
	case c.try && c.flagSet("wait") && c.wait != 0:
		return usage("--try and --wait %v exclude each other", time.Duration(c.wait))
	case ttl < driver.MinTTL || ttl > driver.MaxTTL:
		return usage("--ttl %v: want %v to %v", ttl, driver.MinTTL, driver.MaxTTL)
	case minHold > driver.MaxTTL:
		return usage("--min-hold %v: want at most %v", minHold, driver.MaxTTL)
	case c.busyCode < 1 || c.busyCode > 255:
		return usage("--busy-code %d: want 1 to 255", c.busyCode)
	}
	if err := a.checkLongest(max(ttl, minHold)); err != nil {
		return err
	}
	return checkNames(c.names)
}

// checkLongest rejects a TTL that is longer than the longest TTL of a quorum.
func (a *app) checkLongest(ttl time.Duration) error {
	urls, err := a.storeURLs()
	longest := cmp.Or(a.longestTTL, quorum.Longest)
	if err == nil && len(urls) > 1 && ttl > longest {
		return usage("TTL %v is longer than %v, the longest TTL on this quorum: pass --longest, with the same value everywhere", ttl, longest)
	}
	return err
}

func checkNames(names []string) error {
	for i, name := range names {
		if err := driver.CheckName(name); err != nil {
			return err
		}
		if slices.Contains(names[:i], name) {
			return usage("%s: %q occurs twice", quoted(names), name)
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

// waitForLock acquires the names. While it waits, it shows the holder. A termination
// signal ends the wait.
func (a *app) waitForLock(locks *dibs.Client, c *lockRequest) (*dibs.Lease, error) {
	const pause = 100 * time.Millisecond // between attempts to reach a server that may be starting
	if err := a.refuseDeadlock(locks, c); err != nil {
		return nil, err
	}
	ctx, stop := a.signalContext()
	a.monitor.setWaiting(c.names, false)
	p := a.progress(locks, c.names)
	defer p.end()
	lease, err := tryAcquire(ctx, locks, c, append(c.options(), dibs.Observe(p.hooks())))
	for unsent(err) && !c.try && time.Since(p.begun) < a.timeout && sleep(ctx, pause) {
		lease, err = tryAcquire(ctx, locks, c, append(c.options(), dibs.Observe(p.hooks())))
	}
	signalled := stop()
	var busy *dibs.BusyError
	switch {
	case signalled != nil && err == nil:
		return nil, errors.Join(signalled, lease.Unlock())
	case signalled != nil:
		return nil, signalled
	case errors.As(err, &busy):
		return nil, c.busyError(busy, a.monitor.currentOutage())
	case err != nil:
		return nil, err
	}
	a.monitor.setHolding(lease)
	a.logVerbose("acquired %s after %s, fence %d", quoted(c.names), brief(time.Since(p.begun)), lease.FenceOf(c.names[0]))
	return lease, nil
}

func tryAcquire(ctx context.Context, locks *dibs.Client, c *lockRequest, options []dibs.Option) (*dibs.Lease, error) {
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

// busyError returns an error that names the holder. It never shows the whole token,
// because that is enough to release the lock. away is the duration of the current outage.
func (c *lockRequest) busyError(e *dibs.BusyError, away time.Duration) error {
	if c.skipOK {
		return codeError{}
	}
	text := fmt.Sprintf("%q is held", e.Name)
	if e.Holder != "" {
		text += " by " + ownerOf(e.Holder).String()
	}
	switch {
	case e.Holder != "" && e.Remaining < 0:
		text += " and never expires: it is not a lock of dibs; see dibs show"
	case e.Ahead > 0:
		text += ", " + plural(e.Ahead, "waiter", "waiters") + " ahead"
	}
	if c.wait > 0 && c.wait != noLimit {
		text += fmt.Sprintf("; waited %v", time.Duration(c.wait))
	}
	if away >= reportDelay { // a shorter one may be an operation in flight
		text += fmt.Sprintf("; the store has not answered for %s", brief(away))
	}
	return exitWith(c.busyCode, errors.New(text))
}

// A durationFlag is a duration on the command line: in Go's format, or a number of
// seconds.
type durationFlag time.Duration

const noLimit durationFlag = -1

// String implements pflag.Value.
func (s *durationFlag) String() string {
	if *s == noLimit || *s == 0 {
		return ""
	}
	return time.Duration(*s).String()
}

// Set implements pflag.Value.
func (s *durationFlag) Set(text string) error {
	d, err := time.ParseDuration(text)
	if seconds, failed := strconv.ParseFloat(text, 64); failed == nil {
		d, err = -1, nil // out of range
		if seconds >= 0 && seconds <= maxDuration.Seconds() {
			d = time.Duration(seconds * float64(time.Second))
		}
	}
	if err != nil || d < 0 || d > maxDuration {
		return errors.New("want a duration such as 90s, 1m30s, or a number of seconds, up to 10 years")
	}
	*s = durationFlag(d)
	return nil
}

// maxDuration limits durations so that their sums cannot overflow.
const maxDuration = 10 * 365 * 24 * time.Hour

// Type implements pflag.Value.
func (s *durationFlag) Type() string { return "duration" }

// nameAndCommand splits NAME -- COMMAND. Flags may precede and follow NAME.
func nameAndCommand(c *cobra.Command, args []string) (name string, command []string, err error) {
	dash := c.ArgsLenAtDash()
	if dash == 0 && len(args) > 1 && args[1] == "--" { // dibs run -- -NAME -- COMMAND
		args, dash = slices.Delete(slices.Clone(args), 1, 2), 1
	}
	switch {
	case dash == 1 && len(args) > 1:
		return args[0], args[1:], nil
	case dash < 0 && len(args) > 1:
		return "", nil, usage("write -- before the command: %s %s -- %s", c.CommandPath(), args[0], strings.Join(args[1:], " "))
	case len(args) == 0 || dash == 0:
		return "", nil, usage("no NAME: %s", c.UseLine())
	case dash > 1:
		return "", nil, usage("want one NAME; separate several names by commas: %s", strings.Join(args[:dash], ","))
	}
	return args[0], nil, nil
}
