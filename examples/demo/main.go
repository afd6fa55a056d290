// Demo tells in four scenes what a lock that many processes share is for.
//
//	go run ./examples/demo                                  on the embedded store
//	DIBS_URL=redis://:secret@host:6379/0 go run ./examples/demo
//
// With a URL, of one server, of sentinels or of a cluster (see package redisurl),
// it plays on that Redis, with four processes more, under a prefix of its own, and
// deletes what is under it at the end. What stays is one key of dibs (dibs:fence:…),
// the same one however often it plays.
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
	context.AfterFunc(ctx, stop) // a second Ctrl-C does not wait for the clean-up
	err := run(ctx, os.Args[1:], os.Getenv, os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		if ctx.Err() != nil {
			os.Exit(130) // as shells have it for Ctrl-C
		}
		os.Exit(1)
	}
}

// workerArg makes this program one of its own worker processes. What follows is
// the prefix of the keys.
const workerArg = "worker"

func run(ctx context.Context, args []string, env func(string) string, out io.Writer) error {
	url := env("DIBS_URL")
	switch {
	case len(args) == 2 && args[0] == workerArg:
		// Ctrl-C reaches all processes of a terminal. A worker leaves it to its
		// parent, which ends it by closing its input.
		return serve(context.WithoutCancel(ctx), url, args[1], os.Stdin, out)
	case len(args) > 0:
		return errors.New("takes no arguments; with DIBS_URL=redis://[:password@]host[:port][/db] or another URL it plays on that Redis")
	}
	_, err := runDemo(ctx, url, fullSize, newPrinter(out, env))
	return err
}

// runDemo gathers the cast, plays the scenes and lets the cast go.
func runDemo(ctx context.Context, url string, size demoSize, out *printer) (seen outcome, err error) {
	cast, err := startTeams(ctx, url, size.Teams)
	if err != nil {
		return outcome{}, err
	}
	defer func() { err = errors.Join(err, cast.stop()) }()
	return runScenes(ctx, cast, size, out)
}
