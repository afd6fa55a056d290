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

// An app is one run of dibs: its standard files, its environment, and the flags that all
// subcommands share.
type app struct {
	in      *os.File
	out     io.Writer
	err     io.Writer
	getenv  func(string) string
	environ []string

	urls       []string
	local      bool
	prefix     string
	prefixSet  bool // --prefix was given, possibly empty
	replicas   int
	longestTTL time.Duration
	timeout    time.Duration
	json       bool
	quiet      bool
	verbose    bool

	opened        *opened
	monitor       *storeMonitor  // nil before client
	progressShown atomic.Bool    // the last line of the terminal shows the progress of a wait
	caught        chan os.Signal // see catchSignals
	endForwarded  bool           // a termination signal was forwarded

	locksOutlive bool // locks stay valid after this process exits
	runsCommand  bool // a command runs under the lock
}

// run executes a command line and returns the exit code.
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

// discardLogger is the logger of go-redis. It drops all lines: failures are returned as
// errors.
type discardLogger struct{}

func (discardLogger) Printf(context.Context, string, ...any) {}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "dibs",
		Short: "Distributed locks",
		Long: `dibs acquires and holds distributed locks in Redis, for shell scripts, cron jobs
and operators:

  dibs run --url redis://cache:6379 nightly -- ./backup.sh

While backup.sh runs, every other "dibs run nightly" on that Redis waits, on any
machine, in order of arrival. For one machine, without a server:

  dibs run --local nightly -- ./backup.sh`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          argCount(0, 0),
		RunE:          func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	f := root.PersistentFlags()
	f.StringArrayVar(&a.urls, "url", nil, "URL of the store, such as redis://host:6379; repeat it for a quorum of three or more servers (default $DIBS_URL)")
	f.BoolVar(&a.local, "local", false, "store locks in a file of this user: excludes processes of THIS HOST ONLY")
	f.StringVar(&a.prefix, "prefix", "", `prefix of the keys in Redis; may be empty (default $DIBS_PREFIX, or "lock:")`)
	f.IntVar(&a.replicas, "replicas", 0, "number of replicas that must acknowledge each acquisition (default 0)")
	f.Var((*durationFlag)(&a.longestTTL), "longest", "longest TTL on a quorum; use the same value everywhere (default 1m)")
	f.Var((*durationFlag)(&a.timeout), "timeout", "time limit of one operation on the store (default $DIBS_TIMEOUT, or 2s)")
	f.BoolVar(&a.json, "json", false, "print JSON")
	f.BoolVarP(&a.quiet, "quiet", "q", false, "print errors only")
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

// resolveFlags fills the flags that were not given from the environment and validates
// them.
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

// argCount returns a check for the number of arguments of a subcommand.
func argCount(least, most int) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		var text string
		switch {
		case len(args) > 0 && c.HasSubCommands():
			text = fmt.Sprintf("unknown subcommand %q", args[0])
		case len(args) > most && most == 0:
			text = fmt.Sprintf("%q: want no arguments", args[0])
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

// The groups of subcommands in the help.
const (
	groupHold    = "hold"
	groupInspect = "inspect"
)

// catchSignals redirects all signals that can be caught to a.caught. Signals that the
// caller ignores, for example through nohup, stay ignored.
func (a *app) catchSignals() {
	a.caught = make(chan os.Signal, 64)
	for n := syscall.Signal(1); n <= maxSignal; n++ {
		if forwarded(n) && !signal.Ignored(n) {
			signal.Notify(a.caught, n)
		}
	}
	// SIGPIPE must not end dibs: that would leave a lock and a child process behind.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
}

const maxSignal = 64

// forwarded reports whether a signal is forwarded to the command. Signals that concern
// this process only, such as SIGCHLD or SIGSEGV, are not.
func forwarded(s syscall.Signal) bool {
	switch s {
	case syscall.SIGKILL, syscall.SIGSTOP, syscall.SIGCHLD, syscall.SIGURG, syscall.SIGPIPE,
		syscall.SIGTTIN, syscall.SIGTTOU, syscall.SIGPROF, syscall.SIGVTALRM,
		syscall.SIGSEGV, syscall.SIGBUS, syscall.SIGFPE, syscall.SIGILL, syscall.SIGTRAP, syscall.SIGABRT, syscall.SIGSYS:
		return false
	}
	return s < 32 || s > 34 // the C library uses 32 to 34
}

// isTermination reports whether a signal asks a process to end.
func isTermination(s syscall.Signal) bool {
	switch s {
	case syscall.SIGHUP, syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT:
		return true
	}
	return false
}

// A signalError reports that a signal ended the waiting.
type signalError struct{ syscall.Signal }

func (e signalError) Error() string { return "signal: " + e.Signal.String() }

// signalContext returns a context that a termination signal cancels, until stop is
// called.
//
// stop returns the signal, or nil. Callers must check it: a signal may arrive too late to
// be seen through the context. Other signals are dropped.
//
// The context ends 100 ms after the signal. By then, an operation in flight has usually
// completed; cancelling it at once would cost seconds of clean-up. A second signal
// cancels without that delay.
func (a *app) signalContext() (ctx context.Context, stop func() error) {
	const grace = 100 * time.Millisecond
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
					time.AfterFunc(grace, func() { cancel(asked.first) })
				case n == syscall.SIGTSTP:
					_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP) // always permitted
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

// An endRequest records the first termination signal.
type endRequest struct {
	first error
	at    time.Time
}

// repeated reports whether s is a second termination signal. If so, it makes dibs exit
// after 500 ms, whether or not the store answers. That is enough time to leave the wait
// queue. The same signal twice within 1 s counts once: timeout(1) signals its child and
// then the child's whole group.
func (a *endRequest) repeated(s syscall.Signal) bool {
	const instant, soon = time.Second, 500 * time.Millisecond
	if a.first == nil || !isTermination(s) || errors.Is(a.first, signalError{s}) && time.Since(a.at) < instant {
		return false
	}
	time.AfterFunc(soon, func() { os.Exit(exitSignal + int(s)) })
	return true
}

// exitOnSecondSignal makes dibs exit soon after another termination signal.
func (a *app) exitOnSecondSignal(asked *endRequest) {
	for s := range a.caught {
		if n, _ := s.(syscall.Signal); asked.repeated(n) {
			return
		}
	}
}

// logf prints a line for people on stderr, unless --quiet or --json is set.
func (a *app) logf(format string, args ...any) {
	if !a.quiet && !a.json {
		fmt.Fprint(a.err, a.clear()+"dibs: "+fmt.Sprintf(format, args...)+"\n")
	}
}

// logVerbose prints a line on stderr if --verbose is set.
func (a *app) logVerbose(format string, args ...any) {
	if a.verbose {
		a.monitor.logVerbose(func() { a.logf(format, args...) })
	}
}

// clear returns the sequence that removes a progress line, to print before a lasting
// line.
func (a *app) clear() string {
	if a.progressShown.Load() {
		return clearLine
	}
	return ""
}

// client opens the store and returns a Client on it. The Client's store reports outages.
// closeAll releases all leases and closes the store.
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

// closeClient releases all leases and closes the store. If the store is unreachable, it
// waits for a.timeout at most: leases that cannot be released expire.
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
