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

	urls       []string
	local      bool
	prefix     string
	prefixSet  bool // also if it is empty
	replicas   int
	longestTTL time.Duration
	timeout    time.Duration
	json       bool
	quiet      bool
	verbose    bool

	opened        *opened
	monitor       *storeMonitor  // once a lock was asked for
	progressShown atomic.Bool    // the last line of the terminal is the progress of a wait
	caught        chan os.Signal // see listen
	endForwarded  bool           // a signal that asks to end was passed on

	locksOutlive bool // what is taken is to last when this process has ended
	runsCommand  bool // a command, which works under what is taken
}

// run carries out a command line, and returns the exit code.
func (a *app) run(args []string) int {
	redis.SetLogger(discardLogger{})
	a.catchSignals()
	root := a.root()
	root.SetArgs(args)
	root.SetIn(a.in)
	root.SetOut(a.out)
	root.SetErr(a.err)
	return a.finish(root.Execute())
}

// silence is where go-redis logs to: what matters comes as an error.
type discardLogger struct{}

func (discardLogger) Printf(context.Context, string, ...any) {}

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
		Args:          argCount(0, 0),
		RunE:          func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	f := root.PersistentFlags()
	f.StringArrayVar(&a.urls, "url", nil, "the store, such as redis://host:6379; repeat it for a quorum of three or more servers (default $DIBS_URL)")
	f.BoolVar(&a.local, "local", false, "use a file of this user on this host: excludes on THIS HOST ONLY")
	f.StringVar(&a.prefix, "prefix", "", `first part of the keys in Redis, may be empty (default $DIBS_PREFIX, or "lock:")`)
	f.IntVar(&a.replicas, "replicas", 0, "number of replicas that must have a lock before it counts")
	f.Var((*durationFlag)(&a.longestTTL), "longest", "longest TTL on a quorum, the same for all its users (default 1m)")
	f.Var((*durationFlag)(&a.timeout), "timeout", "limit of one operation on the store (default $DIBS_TIMEOUT, or 2s)")
	f.BoolVar(&a.json, "json", false, "print JSON")
	f.BoolVarP(&a.quiet, "quiet", "q", false, "print nothing but errors")
	root.PersistentPreRunE = a.resolveFlags
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return usageError{fmt.Errorf("%w\nsee: %s --help", err, c.CommandPath())}
	})
	limitHelpWidth(root)
	root.AddGroup(
		&cobra.Group{ID: groupHold, Title: "Hold a lock:"},
		&cobra.Group{ID: groupInspect, Title: "Inspect and administer:"},
	)
	for _, verb := range []*cobra.Command{a.runCmd(), a.electCmd(), a.holdCmd(), a.acquireCmd(), a.renewCmd(), a.releaseCmd()} {
		verb.GroupID = groupHold
		root.AddCommand(verb)
	}
	for _, verb := range []*cobra.Command{
		a.lsCmd(),
		a.showCmd(),
		a.watchCmd(),
		a.topCmd(),
		a.unlockCmd(),
		a.doctorCmd(),
		a.benchCmd(),
		a.versionCmd(),
		a.manCmd(),
	} {
		verb.GroupID = groupInspect
		root.AddCommand(verb)
	}
	return root
}

// settle reads from the environment what the flags do not say, and checks it.
func (a *app) resolveFlags(c *cobra.Command, _ []string) error {
	const least = time.Millisecond
	from := "--timeout"
	a.prefixSet = c.Flags().Changed("prefix")
	if !c.Flags().Changed("timeout") {
		from, a.timeout = "DIBS_TIMEOUT", 2*time.Second
		if text := a.getenv("DIBS_TIMEOUT"); text != "" {
			if err := (*durationFlag)(&a.timeout).Set(text); err != nil {
				return usage("DIBS_TIMEOUT %q: %w", text, err)
			}
		}
	}
	switch {
	case a.timeout < least:
		return usage("%s %v: want at least %v", from, a.timeout, least)
	case a.replicas < 0:
		return usage("--replicas %d: want 0 or more", a.replicas)
	case c.Flags().Changed("longest") && (a.longestTTL < driver.MinTTL || a.longestTTL > driver.MaxTTL):
		return usage("--longest %v: want %v to %v", a.longestTTL, driver.MinTTL, driver.MaxTTL)
	}
	return nil
}

// arguments checks how many arguments a verb has.
func argCount(least, most int) cobra.PositionalArgs {
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
	groupHold    = "hold"
	groupInspect = "look"
)

// listen takes over all signals that can be caught, from the first moment on. What the
// caller has ignored, as nohup does, stays so.
func (a *app) catchSignals() {
	a.caught = make(chan os.Signal, 64)
	for n := syscall.Signal(1); n <= maxSignal; n++ {
		if forwarded(n) && !signal.Ignored(n) {
			signal.Notify(a.caught, n)
		}
	}
	// A reader of ours that has gone is no reason to leave a lock and a child behind.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
}

const maxSignal = 64

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
func isTermination(s syscall.Signal) bool {
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
func (a *app) signalContext() (ctx context.Context, stop func() error) {
	const moment = 100 * time.Millisecond
	ctx, cancel := context.WithCancelCause(context.Background())
	over, done := make(chan struct{}), make(chan *endRequest, 1)
	go func() {
		asked := new(endRequest)
		for {
			select {
			case <-over:
				done <- asked
				return
			case s := <-a.caught:
				switch n, _ := s.(syscall.Signal); {
				case asked.repeated(n):
					cancel(asked.first)
				case asked.first == nil && isTermination(n):
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
			go a.exitOnSecondSignal(asked)
		}
		return asked.first
	}
}

// An asked is a dibs that a signal has asked to end.
type endRequest struct {
	first error
	at    time.Time
}

// again reports whether a signal asks once more, and then has dibs end soon: whatever the
// store answers, but not before it can have been told that nobody waits here any more. One
// that comes twice in one instant has one sender: timeout(1) signals its child, and then its
// whole group.
func (a *endRequest) repeated(s syscall.Signal) bool {
	const instant, soon = time.Second, 500 * time.Millisecond
	if a.first == nil || !isTermination(s) || errors.Is(a.first, signalError{s}) && time.Since(a.at) < instant {
		return false
	}
	time.AfterFunc(soon, func() { os.Exit(exitSignal + int(s)) })
	return true
}

// hurry ends dibs soon if another signal comes.
func (a *app) exitOnSecondSignal(asked *endRequest) {
	for s := range a.caught {
		if n, _ := s.(syscall.Signal); asked.repeated(n) {
			return
		}
	}
}

// say tells a person something, on stderr.
func (a *app) logf(format string, args ...any) {
	if !a.quiet && !a.json {
		fmt.Fprint(a.err, a.clear()+"dibs: "+fmt.Sprintf(format, args...)+"\n")
	}
}

// detail says what only --verbose wants to know.
func (a *app) logVerbose(format string, args ...any) {
	if a.verbose {
		a.monitor.logVerbose(func() { a.logf(format, args...) })
	}
}

// clear is what a terminal is told before a line that is to stay.
func (a *app) clear() string {
	if a.progressShown.Load() {
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
	a.opened, a.monitor = s, a.newMonitor(s)
	options = append([]dibs.Option{dibs.Timeout(a.timeout), dibs.Observe(a.monitor.hooks())}, options...)
	locks = dibs.New(a.monitor, options...)
	return locks, func() error { return a.closeClient(locks, s) }, nil
}

// closed releases what is held. A store that is away is waited for as long as for one
// operation, and no longer: what cannot be released expires.
func (a *app) closeClient(locks *dibs.Client, s *opened) error {
	a.monitor.end()
	done := make(chan error, 1)
	go func() { done <- errors.Join(locks.Close(), s.close()) }()
	var limit <-chan time.Time
	if a.monitor.currentOutage() > 0 {
		limit = time.After(a.timeout)
	}
	select {
	case err := <-done:
		return err
	case <-limit:
		return nil
	}
}
