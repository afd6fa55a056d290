package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/cmd/dibs/internal/monitor"
	"github.com/dibslock/dibs/dashboard/view"
	"github.com/dibslock/dibs/driver"
	"github.com/spf13/pflag"
)

// A lockRequest holds a lock's flags: the names, the mode, and how long to wait.
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

	flagSet func(flag string) bool
}

// minHoldFlag adds --min-hold to f. It is not for acquire: dibs release frees a name at once.
func (c *lockRequest) minHoldFlag(f *pflag.FlagSet) {
	f.Var(&c.minHold, "min-hold", "least time that NAME stays unavailable, also after COMMAND ends; for cron on hosts whose clocks differ (default 0)")
}

// flags adds all lock request flags to f but --min-hold, and --verbose for con.
func (c *lockRequest) flags(f *pflag.FlagSet, con *console) {
	c.leaseFlags(f, con)
	f.BoolVar(&c.shared, "shared", false, "hold NAME together with other shared holders; exclude all others")
	f.IntVar(&c.slots, "slots", 0, "allow up to `N` concurrent holders; use the same N everywhere")
	f.IntVar(&c.permits, "permits", 1, "number `N` of slots to acquire")
	f.BoolVarP(&c.try, "try", "n", false, "do not wait")
	f.VarP(&c.wait, "wait", "w", "longest wait, such as 90s, 1m30s or a number of seconds; 0 means --try (default: no limit)")
	f.IntVarP(&c.busyCode, "busy-code", "E", exitBusy, "exit code when NAME is held")
	f.BoolVar(&c.skipOK, "skip-ok", false, "exit with 0 and print nothing when NAME is held")
}

// leaseFlags adds a lease's flags to f and sets all flags' defaults.
func (c *lockRequest) leaseFlags(f *pflag.FlagSet, con *console) {
	c.ttl, c.wait, c.permits, c.busyCode, c.flagSet = durationFlag(30*time.Second), noLimit, 1, exitBusy, f.Changed
	f.Var(&c.ttl, "ttl", "lease duration: how long the lock survives a crash")
	f.StringVar(&c.label, "label", "", "text shown to others beside host and process ID")
	f.BoolVarP(&con.verbose, "verbose", "v", false, "also report waiting, acquired and released")
}

// waits reports whether --wait has a time. During it dibs also waits for a store that does not
// answer.
func (c *lockRequest) waits() bool { return !c.try && c.wait > 0 && c.wait != noLimit }

// patience returns how long to try to reach a store that does not answer. Without --wait a missing
// store is most likely a mistake in its URL.
func (c *lockRequest) patience(timeout time.Duration) time.Duration {
	switch {
	case c.try || c.wait == 0:
		return 0
	case c.wait == noLimit:
		return timeout
	}
	return time.Duration(c.wait)
}

// options returns the options for the flags, for a request that already waited.
func (c *lockRequest) options(waited time.Duration) []dibs.Option {
	options := []dibs.Option{dibs.TTL(time.Duration(c.ttl)), dibs.MinHold(time.Duration(c.minHold)), dibs.Label(c.label)}
	switch {
	case c.try:
		options = append(options, dibs.Wait(0))
	case c.wait != noLimit:
		options = append(options, dibs.Wait(max(time.Duration(c.wait)-waited, 0)))
	}
	return options
}

// check validates the names and the flags. Its errors are usage errors that name the flag.
func (c *lockRequest) check(a *app, names []string) error {
	c.names = names
	minHold, ttl := time.Duration(c.minHold), time.Duration(c.ttl)
	switch {
	case a.con.verbose && a.con.quiet:
		return usage("--verbose and --quiet exclude each other")
	case len(c.names) > 1 && (c.shared || c.flagSet("slots")):
		return usage("%s: several names are held exclusively: --shared and --slots need a single name", view.Quoted(c.names))
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
	if err := a.stores.checkLongest(max(ttl, minHold)); err != nil {
		return err
	}
	return checkNames(c.names)
}

// busyError returns an error that names the holder. It never shows the whole token, because the
// token is enough to release the lock. away is the current outage's duration.
func (c *lockRequest) busyError(e *dibs.BusyError, away time.Duration) error {
	if c.skipOK {
		return busyResult{}
	}
	text := fmt.Sprintf("%q is held", e.Name)
	if e.Holder != "" {
		text += " by " + view.OwnerOf(string(e.Holder)).String()
	}
	switch {
	case e.Holder != "" && e.NeverExpires:
		text += " and never expires: it is not a lock of dibs; see dibs show"
	case e.Ahead > 0:
		text += ", " + view.Plural(e.Ahead, "waiter", "waiters") + " ahead"
	}
	if e.Holder != "" && !e.NeverExpires && view.OwnerOf(string(e.Holder)).Host == "" {
		text += "; its token was not made by dibs: see dibs show"
	}
	if c.wait > 0 && c.wait != noLimit {
		text += fmt.Sprintf("; waited %v", time.Duration(c.wait))
	}
	if away >= monitor.Delay { // a shorter outage may be an operation in flight
		text += fmt.Sprintf("; the store has not answered for %s", view.Brief(away))
	}
	return busyResult{codeError{c.busyCode, errors.New(text)}}
}
