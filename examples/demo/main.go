// Demo shows in four scenes why processes need distributed locks.
//
//	go run ./examples/demo                                  on the embedded store
//	DIBS_URL=redis://:secret@host:6379/0 go run ./examples/demo
//
// The URL can name a server, sentinels or a cluster: see package redisurl. On Redis, the
// demo starts four more processes. It uses a random key prefix, and deletes its keys at
// the end. A dibs key stays (dibs:fence:…), the same key after each run.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C skips the clean-up
	err := run(ctx, os.Args[1:], os.Getenv, os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		if ctx.Err() != nil {
			os.Exit(130) // the shells' exit code for Ctrl-C
		}
		os.Exit(1)
	}
}

// workerArg makes this program a worker process. The next argument is the keys' prefix.
const workerArg = "worker"

func run(ctx context.Context, args []string, env func(string) string, out io.Writer) error {
	url := env("DIBS_URL")
	switch {
	case len(args) == 2 && args[0] == workerArg:
		// Ctrl-C reaches all processes in a terminal. A worker ignores it: its parent ends it by
		// closing its input.
		return serve(context.WithoutCancel(ctx), url, args[1], os.Stdin, out)
	case len(args) > 0:
		return errors.New("want no arguments; to run on a Redis, set DIBS_URL=redis://[:password@]host[:port][/db]")
	}
	_, err := runDemo(ctx, url, fullSize, newPrinter(out, env))
	return err
}

// runDemo starts the teams, runs the scenes and stops the teams.
func runDemo(ctx context.Context, url string, size demoSize, out *printer) (seen outcome, err error) {
	teams, err := startTeams(ctx, url, size.Teams)
	if err != nil {
		return outcome{}, err
	}
	defer func() { err = errors.Join(err, teams.stop()) }()
	return runScenes(ctx, teams, size, out)
}
