package main

import (
	"context"
	"fmt"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/cmd/dibs/internal/monitor"
	"github.com/dibslock/dibs/dashboard/view"
	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"
)

// An app is a run of dibs: the parts shared by all subcommands.
type app struct {
	con     *console
	env     environment
	stores  storeFlags
	signals signals
}

func newApp(con *console, caught signals) *app {
	return &app{con: con, env: con.env, stores: storeFlags{env: con.env}, signals: caught}
}

// run executes a command line and returns the exit code. It does not return if dibs ends
// by a signal.
func (a *app) run(args []string) int {
	redis.SetLogger(discardLogger{})
	discardGRPCLog()
	root := a.root()
	root.SetArgs(args)
	root.SetIn(a.con.in)
	root.SetOut(a.con.out)
	root.SetErr(a.con.err)
	err := root.Execute()
	code := a.con.finish(err)
	dieOf(err)
	return code
}

// discardLogger is go-redis' logger. It drops all lines: failures are returned as errors.
type discardLogger struct{}

func (discardLogger) Printf(context.Context, string, ...any) {}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "dibs",
		Short: "Distributed locks",
		Long: `dibs acquires and holds distributed locks in Redis, PostgreSQL, MariaDB, MySQL,
etcd or ZooKeeper, for shell scripts, cron jobs and operators:

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
	a.stores.flags(f)
	f.BoolVar(&a.con.json, "json", false, "print JSON")
	f.BoolVarP(&a.con.quiet, "quiet", "q", false, "print errors only")
	root.PersistentPreRunE = func(c *cobra.Command, _ []string) error { return a.stores.resolve(c.Flags().Changed) }
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return usageError{fmt.Errorf("%w\nsee: %s --help", err, c.CommandPath())}
	})
	limitHelpWidth(root)
	addGroup(root, "hold", "Hold a lock:",
		runCmd(a), electCmd(a), holdCmd(a), acquireCmd(a), renewCmd(a), releaseCmd(a))
	addGroup(root, "inspect", "Inspect and administer:",
		serveCmd(a), lsCmd(a), showCmd(a), watchCmd(a), topCmd(a), unlockCmd(a), doctorCmd(a), migrateCmd(a), versionCmd(a), manCmd())
	return root
}

// addGroup adds a group of subcommands to the help.
func addGroup(root *cobra.Command, id, title string, verbs ...*cobra.Command) {
	root.AddGroup(&cobra.Group{ID: id, Title: title})
	for _, verb := range verbs {
		verb.GroupID = id
		root.AddCommand(verb)
	}
}

// argCount returns a check for a subcommand's number of arguments.
func argCount(least, most int) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		var text string
		switch {
		case len(args) > 0 && c.HasSubCommands():
			text = fmt.Sprintf("unknown subcommand %q", args[0])
		case len(args) > most && most == 0:
			text = fmt.Sprintf("%q: want no arguments", args[0])
		case len(args) > most:
			text = "want one argument, not " + view.Quoted(args)
		case len(args) < least:
			text = "no NAME"
		default:
			return nil
		}
		return usage("%s: %s\nsee: %s --help", text, c.UseLine(), c.CommandPath())
	}
}

// withStore opens the store and calls do, with a context that a termination signal cancels.
func (a *app) withStore(do func(ctx context.Context, s *opened) error) error {
	s, err := a.stores.open(untilExit)
	if err != nil {
		return err
	}
	defer func() { _ = s.close() }() // do has reported all relevant failures
	ctx, stop := a.signals.context()
	err = do(ctx, s)
	if signalled := stop(); signalled != nil {
		return signalled
	}
	return s.explain(err)
}

// connect opens the store and returns a session on it.
func (a *app) connect(l lifetime, options ...dibs.Option) (*session, error) {
	store, err := a.stores.open(l)
	if err != nil {
		return nil, err
	}
	con := a.con
	watched := monitor.New(store.Store, monitor.Options{
		Location: store.location, Timeout: store.timeout, Verbose: con.verbose || con.json,
		Show: func(r monitor.Report) { showReport(con, r) },
	})
	options = append([]dibs.Option{dibs.Timeout(store.timeout), dibs.Observe(watched.Hooks())}, options...)
	s := &session{con: con, signals: a.signals, store: store, monitor: watched, options: options, outer: outerTokens(a.env)}
	s.locks = s.newClient()
	return s, nil
}
