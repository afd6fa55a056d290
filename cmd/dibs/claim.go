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
	"github.com/dibslock/dibs/quorum"
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
	verbose  bool

	given func(flag string) bool
}

// flags gives a verb all flags of a claim.
func (c *claim) flags(f *pflag.FlagSet) {
	c.leaseFlags(f)
	f.BoolVar(&c.shared, "shared", false, "hold NAME together with other shared holders; exclude all others")
	f.IntVar(&c.slots, "slots", 0, "allow up to `N` concurrent holders; use the same N everywhere")
	f.IntVar(&c.permits, "permits", 1, "take `N` of the slots")
	f.BoolVarP(&c.try, "try", "n", false, "do not wait")
	f.VarP(&c.wait, "wait", "w", "longest wait, such as 90s, 1m30s, or a number of seconds; 0 is --try (default: no limit)")
	f.Var(&c.minHold, "min-hold", "keep NAME reserved for at least this long, for cron on hosts whose clocks differ")
	f.IntVarP(&c.busyCode, "busy-code", "E", exitBusy, "exit code when NAME is taken")
	f.BoolVar(&c.skipOK, "skip-ok", false, "exit with 0, and print nothing, when NAME is taken")
}

// leaseFlags are those of whatever is held.
func (c *claim) leaseFlags(f *pflag.FlagSet) {
	c.ttl, c.wait, c.permits, c.busyCode, c.given = span(30*time.Second), forever, 1, exitBusy, f.Changed
	f.Var(&c.ttl, "ttl", "lease duration: how long the lock survives a crash")
	f.StringVar(&c.label, "label", "", "text that others see beside host and process id")
	f.BoolVarP(&c.verbose, "verbose", "v", false, "also report waiting, acquired and released")
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

// check reads the names, one or several with commas between, and finds what is wrong
// with the flags, in the words of the command line.
func (c *claim) check(a *app, arg string) error {
	c.names, a.verbose = strings.Split(arg, ","), c.verbose
	minHold, ttl := time.Duration(c.minHold), time.Duration(c.ttl)
	switch {
	case c.verbose && a.quiet:
		return usage("--verbose and --quiet: use one of them")
	case len(c.names) > 1 && (c.shared || c.given("slots")):
		return usage("%s: several names are held exclusively: --shared and --slots are for one name", quoted(c.names))
	case c.shared && c.given("slots"):
		return usage("--shared and --slots: use one of them")
	case c.given("slots") && (c.slots < 1 || c.slots > dibs.Unlimited):
		return usage("--slots %d: want 1 to %d", c.slots, dibs.Unlimited)
	case c.given("permits") && !c.given("slots"):
		return usage("--permits is for --slots")
	case c.slots > 0 && (c.permits < 1 || c.permits > c.slots):
		return usage("--permits %d: want 1 to %d, the number of --slots", c.permits, c.slots)
	case c.try && c.given("wait") && c.wait != 0:
		return usage("--try and --wait %v: use one of them", time.Duration(c.wait))
	case ttl < dibs.MinTTL || ttl > dibs.MaxTTL:
		return usage("--ttl %v: want %v to %v", ttl, dibs.MinTTL, dibs.MaxTTL)
	case minHold > dibs.MaxTTL:
		return usage("--min-hold %v: want at most %v", minHold, dibs.MaxTTL)
	case c.busyCode < 1 || c.busyCode > 255:
		return usage("--busy-code %d: want 1 to 255", c.busyCode)
	}
	if err := a.checkLongest(max(ttl, minHold)); err != nil {
		return err
	}
	return checkNames(c.names)
}

// checkLongest refuses a TTL that a quorum does not take.
func (a *app) checkLongest(ttl time.Duration) error {
	urls, err := a.where()
	longest := cmp.Or(a.longest, quorum.Longest)
	if err == nil && len(urls) > 1 && ttl > longest {
		return usage("%v is too long for a quorum: its longest TTL is %v; a longer one needs --longest, the same for all its users", ttl, longest)
	}
	return err
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
	const pause = 100 * time.Millisecond // before a server that may be starting is tried again
	if err := a.nested(locks, c); err != nil {
		return nil, err
	}
	ctx, stop := a.patient()
	a.store.waits(c.names, false)
	p := a.progress(locks, c.names)
	defer p.end()
	lease, err := take(ctx, locks, c, append(c.options(), dibs.Observe(p.hooks())))
	for unsent(err) && !c.try && time.Since(p.begun) < a.timeout && sleep(ctx, pause) {
		lease, err = take(ctx, locks, c, append(c.options(), dibs.Observe(p.hooks())))
	}
	signalled := stop()
	var busy *dibs.BusyError
	switch {
	case signalled != nil && err == nil:
		return nil, errors.Join(signalled, lease.Unlock())
	case signalled != nil:
		return nil, signalled
	case errors.As(err, &busy):
		return nil, c.busy(busy, a.store.awayNow())
	case err != nil:
		return nil, err
	}
	a.store.holds(lease)
	a.detail("acquired %s after %s, fence %d", quoted(c.names), brief(time.Since(p.begun)), lease.FenceOf(c.names[0]))
	return lease, nil
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

// busy returns the error for a name that is held. It shows no whole token, because a token
// is enough to release the lock. away is the time since the store's last answer.
func (c *claim) busy(e *dibs.BusyError, away time.Duration) error {
	if c.skipOK {
		return codeError{}
	}
	text := fmt.Sprintf("%q is taken", e.Name)
	if e.Holder != "" {
		text += ": held by " + ownerOf(e.Holder).String()
	}
	switch {
	case e.Holder != "" && e.Remaining < 0:
		text += ", and never expires: it is not a lock of dibs; see dibs show"
	case e.Ahead > 0:
		text += ", " + plural(e.Ahead, "waiter", "waiters") + " ahead"
	}
	if c.wait > 0 && c.wait != forever {
		text += fmt.Sprintf("; waited %v", time.Duration(c.wait))
	}
	if away >= moment { // it may just be asking
		text += fmt.Sprintf(", and the store has not answered for %s", brief(away))
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
		d, err = -1, nil // unless it is a number within the range
		if seconds >= 0 && seconds <= longestSpan.Seconds() {
			d = time.Duration(seconds * float64(time.Second))
		}
	}
	if err != nil || d < 0 || d > longestSpan {
		return errors.New("want a duration such as 90s, 1m30s, or a number of seconds, up to 10 years")
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
		return "", nil, usage("want one NAME, with commas for several: %s", strings.Join(args[:dash], ","))
	}
	return args[0], nil, nil
}
