package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"
)

// An app is one run of the command: what it reads, where it writes, and the flags that
// all verbs share.
type app struct {
	in      *os.File
	out     io.Writer
	err     io.Writer
	getenv  func(string) string
	environ []string

	urls      []string
	local     bool
	prefix    string
	prefixSet bool // also if it is empty
	replicas  int
	longest   time.Duration
	timeout   time.Duration
	json      bool
	quiet     bool
	verbose   bool

	opened *opened
	store  *witness       // once a lock was asked for
	live   atomic.Bool    // the last line of the terminal is the progress of a wait
	caught chan os.Signal // see listen
	ending bool           // a signal that asks to end was passed on

	outlive bool // what is taken is to last when this process has ended
	runs    bool // a command, which works under what is taken
}

// run carries out a command line, and returns the exit code.
func (a *app) run(args []string) int {
	redis.SetLogger(silence{})
	a.listen()
	root := a.root()
	root.SetArgs(args)
	root.SetIn(a.in)
	root.SetOut(a.out)
	root.SetErr(a.err)
	return a.finish(root.Execute())
}

// silence is where go-redis logs to: what matters comes as an error.
type silence struct{}

func (silence) Printf(context.Context, string, ...any) {}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "dibs",
		Short: "Locks that many machines share",
		Long: `dibs holds locks that many machines share, in Redis, for shells, cron and
operators:

  dibs run --url redis://cache:6379 nightly -- ./backup.sh

While backup.sh runs, no other "dibs run nightly" on that Redis runs its
command, on any machine: it waits, in order of arrival. On one machine, with
nothing installed:

  dibs run --local nightly -- ./backup.sh`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          arguments(0, 0),
		RunE:          func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	f := root.PersistentFlags()
	f.StringArrayVar(&a.urls, "url", nil, "the store, such as redis://host:6379; repeat it for a quorum of three or more servers (default $DIBS_URL)")
	f.BoolVar(&a.local, "local", false, "use a file of this user on this host: excludes on THIS HOST ONLY")
	f.StringVar(&a.prefix, "prefix", "", `first part of the keys in Redis, may be empty (default $DIBS_PREFIX, or "lock:")`)
	f.IntVar(&a.replicas, "replicas", 0, "number of replicas that must have a lock before it counts")
	f.Var((*span)(&a.longest), "longest", "longest TTL on a quorum, the same for all its users (default 1m)")
	f.Var((*span)(&a.timeout), "timeout", "limit of one operation on the store (default $DIBS_TIMEOUT, or 2s)")
	f.BoolVar(&a.json, "json", false, "print JSON")
	f.BoolVarP(&a.quiet, "quiet", "q", false, "print nothing but errors")
	root.PersistentPreRunE = a.settle
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return usageError{fmt.Errorf("%w\nsee: %s --help", err, c.CommandPath())}
	})
	narrow(root)
	root.AddGroup(
		&cobra.Group{ID: hold, Title: "Hold a lock:"},
		&cobra.Group{ID: look, Title: "Inspect and administer:"},
	)
	for _, verb := range []*cobra.Command{a.runVerb(), a.electVerb(), a.holdVerb(), a.acquireVerb(), a.renewVerb(), a.releaseVerb()} {
		verb.GroupID = hold
		root.AddCommand(verb)
	}
	for _, verb := range []*cobra.Command{
		a.lsVerb(),
		a.showVerb(),
		a.watchVerb(),
		a.topVerb(),
		a.unlockVerb(),
		a.doctorVerb(),
		a.benchVerb(),
		a.versionVerb(),
		a.manVerb(),
	} {
		verb.GroupID = look
		root.AddCommand(verb)
	}
	return root
}

// settle reads from the environment what the flags do not say, and checks it.
func (a *app) settle(c *cobra.Command, _ []string) error {
	const least = time.Millisecond
	from := "--timeout"
	a.prefixSet = c.Flags().Changed("prefix")
	if !c.Flags().Changed("timeout") {
		from, a.timeout = "DIBS_TIMEOUT", 2*time.Second
		if text := a.getenv("DIBS_TIMEOUT"); text != "" {
			if err := (*span)(&a.timeout).Set(text); err != nil {
				return usage("DIBS_TIMEOUT %q: %w", text, err)
			}
		}
	}
	switch {
	case a.timeout < least:
		return usage("%s %v: want at least %v", from, a.timeout, least)
	case a.replicas < 0:
		return usage("--replicas %d: want 0 or more", a.replicas)
	case c.Flags().Changed("longest") && (a.longest < driver.MinTTL || a.longest > driver.MaxTTL):
		return usage("--longest %v: want %v to %v", a.longest, driver.MinTTL, driver.MaxTTL)
	}
	return nil
}

// arguments checks how many arguments a verb has.
func arguments(least, most int) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		var text string
		switch {
		case len(args) > 0 && c.HasSubCommands():
			text = fmt.Sprintf("no verb %q", args[0])
		case len(args) > most && most == 0:
			text = fmt.Sprintf("%q: want no argument", args[0])
		case len(args) > most:
			text = "want one argument, not " + quoted(args)
		case len(args) < least:
			text = "no NAME"
		default:
			return nil
		}
		return usage("%s: %s\nsee: %s --help", text, c.UseLine(), c.CommandPath())
	}
}

// The groups of verbs.
const (
	hold = "hold"
	look = "look"
)

// listen takes over all signals that can be caught, from the first moment on. What the
// caller has ignored, as nohup does, stays so.
func (a *app) listen() {
	a.caught = make(chan os.Signal, 64)
	for n := syscall.Signal(1); n <= mostSignals; n++ {
		if forwarded(n) && !signal.Ignored(n) {
			signal.Notify(a.caught, n)
		}
	}
	// A reader of ours that has gone is no reason to leave a lock and a child behind.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
}

const mostSignals = 64

// forwarded reports whether a signal is a message, and not about this process itself.
func forwarded(s syscall.Signal) bool {
	switch s {
	case syscall.SIGKILL, syscall.SIGSTOP, syscall.SIGCHLD, syscall.SIGURG, syscall.SIGPIPE,
		syscall.SIGTTIN, syscall.SIGTTOU, syscall.SIGPROF, syscall.SIGVTALRM,
		syscall.SIGSEGV, syscall.SIGBUS, syscall.SIGFPE, syscall.SIGILL, syscall.SIGTRAP, syscall.SIGABRT, syscall.SIGSYS:
		return false
	}
	return s < 32 || s > 34 // these are the C library's
}

// ends reports whether a signal asks a process to end, which it does if it does not care.
func ends(s syscall.Signal) bool {
	switch s {
	case syscall.SIGHUP, syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT:
		return true
	}
	return false
}

// signalError says that a signal ended the waiting.
type signalError struct{ syscall.Signal }

func (e signalError) Error() string { return "signal: " + e.Signal.String() }

// patient returns a context that a signal ends, until stop is called, which returns the
// signal: it may have come too late for anybody to see that the context has ended. Those
// that do not ask to end are dropped. The context ends a moment later, when the question
// that was under way has most likely been answered: otherwise dibs would go on undoing it
// for seconds. Who asks twice does not wait for that.
func (a *app) patient() (ctx context.Context, stop func() error) {
	const moment = 100 * time.Millisecond
	ctx, cancel := context.WithCancelCause(context.Background())
	over, done := make(chan struct{}), make(chan *asked, 1)
	go func() {
		asked := new(asked)
		for {
			select {
			case <-over:
				done <- asked
				return
			case s := <-a.caught:
				switch n, _ := s.(syscall.Signal); {
				case asked.again(n):
					cancel(asked.first)
				case asked.first == nil && ends(n):
					asked.first, asked.at = signalError{n}, time.Now()
					time.AfterFunc(moment, func() { cancel(asked.first) })
				case n == syscall.SIGTSTP:
					_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP) // one may always
				}
			}
		}
	}()
	return ctx, func() error {
		close(over)
		cancel(nil)
		asked := <-done
		if asked.first != nil {
			go a.hurry(asked)
		}
		return asked.first
	}
}

// An asked is a dibs that a signal has asked to end.
type asked struct {
	first error
	at    time.Time
}

// again reports whether a signal asks once more, and then has dibs end soon: whatever the
// store answers, but not before it can have been told that nobody waits here any more. One
// that comes twice in one instant has one sender: timeout(1) signals its child, and then its
// whole group.
func (a *asked) again(s syscall.Signal) bool {
	const instant, soon = time.Second, 500 * time.Millisecond
	if a.first == nil || !ends(s) || errors.Is(a.first, signalError{s}) && time.Since(a.at) < instant {
		return false
	}
	time.AfterFunc(soon, func() { os.Exit(exitSignal + int(s)) })
	return true
}

// hurry ends dibs soon if another signal comes.
func (a *app) hurry(asked *asked) {
	for s := range a.caught {
		if n, _ := s.(syscall.Signal); asked.again(n) {
			return
		}
	}
}

// say tells a person something, on stderr.
func (a *app) say(format string, args ...any) {
	if !a.quiet && !a.json {
		fmt.Fprint(a.err, a.clear()+"dibs: "+fmt.Sprintf(format, args...)+"\n")
	}
}

// detail says what only --verbose wants to know.
func (a *app) detail(format string, args ...any) {
	if a.verbose {
		a.store.detail(func() { a.say(format, args...) })
	}
}

// clear is what a terminal is told before a line that is to stay.
func (a *app) clear() string {
	if a.live.Load() {
		return clearLine
	}
	return ""
}

// client opens the store and makes a Client on it that reports when the store is away;
// close releases what is held.
func (a *app) client(options ...dibs.Option) (locks *dibs.Client, closeAll func() error, err error) {
	s, err := a.open()
	if err != nil {
		return nil, nil, err
	}
	a.opened, a.store = s, a.witness(s)
	options = append([]dibs.Option{dibs.Timeout(a.timeout), dibs.Observe(a.store.hooks())}, options...)
	locks = dibs.New(a.store, options...)
	return locks, func() error { return a.closed(locks, s) }, nil
}

// closed releases what is held. A store that is away is waited for as long as for one
// operation, and no longer: what cannot be released expires.
func (a *app) closed(locks *dibs.Client, s *opened) error {
	a.store.end()
	done := make(chan error, 1)
	go func() { done <- errors.Join(locks.Close(), s.close()) }()
	var limit <-chan time.Time
	if a.store.awayNow() > 0 {
		limit = time.After(a.timeout)
	}
	select {
	case err := <-done:
		return err
	case <-limit:
		return nil
	}
}
