// Attempts shows a lock that one process takes and another one gives back, known
// by a request id, while a third party tries a few times to get it.
//
//	go run ./examples/attempts                                      in one process
//	DIBS_URL=redis://localhost:6379 go run ./examples/attempts      with a second one
package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/examples/internal/exstore"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:], os.Getenv("DIBS_URL"), os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "attempts:", err)
		os.Exit(1)
	}
}

const name = "report:2026"

// finishArg makes this program the process that finishes what another one began.
// It prints attached when it is about to.
const (
	finishArg = "finish"
	attached  = "attached"
)

func run(ctx context.Context, args []string, url string, out io.Writer) error {
	store, err := exstore.Open(ctx, url)
	if err != nil {
		return err
	}
	defer store.Close()
	if len(args) == 1 && args[0] == finishArg {
		token, err := io.ReadAll(os.Stdin)
		if err != nil {
			return err
		}
		return finish(ctx, store, string(token), func() { fmt.Fprintln(out, attached) })
	}
	fmt.Fprintf(out, "locks on %s\n", store.Description)
	return runRequests(ctx, store, url, out)
}

// runRequests serves two: the first hands its lock on to a finisher, the second
// comes while it is held.
func runRequests(ctx context.Context, store *exstore.Store, url string, out io.Writer) error {
	locks := dibs.New(store)
	defer locks.Close()
	first, err := lockWithAttempts(ctx, locks)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "first:    holds %s as %s…\n", name, first.Token()[:8])

	finished, err := startFinisher(ctx, store, url, first.Token())
	if err != nil {
		return err
	}
	asked := time.Now()
	fmt.Fprintln(out, "second:   tries 10 times, 100 ms apart")
	second, err := lockWithAttempts(ctx, locks)
	if err != nil {
		return errors.Join(err, finished())
	}
	fmt.Fprintf(out, "second:   has it, after %v\n", time.Since(asked).Round(100*time.Millisecond))
	if err := finished(); err != nil {
		return err
	}
	// The lease of the first request was ended by the finisher, as was agreed.
	if err := first.Unlock(); !errors.Is(err, dibs.ErrLost) {
		return fmt.Errorf("want the first lease to be over, have %w", err)
	}
	fmt.Fprintln(out, "first:    was given back by the finisher")
	return second.Unlock()
}

// lockWithAttempts takes the lock under an id of its own, with a fixed number of tries.
func lockWithAttempts(ctx context.Context, locks *dibs.Client) (*dibs.Lease, error) {
	// Whoever knows the id may give the lock back, so it must be hard to guess.
	id := "req-" + rand.Text()
	return locks.Mutex(name).Lock(ctx, dibs.Attempts(10, 100*time.Millisecond), dibs.Token(id))
}

// finish does the rest of the work, and gives the lock back by its token.
func finish(ctx context.Context, store driver.Store, token string, ready func()) error {
	locks := dibs.New(store) // knows nothing of the one that took the lock
	defer locks.Close()
	lease, err := locks.Attach(name, token)
	if err != nil {
		return err
	}
	ready()
	select {
	case <-time.After(250 * time.Millisecond): // the rest of the work
	case <-ctx.Done():
	}
	return lease.Unlock()
}

// startFinisher lets another process finish: this program once more. On a store that
// no other process can see, another client has to do. It returns when that one is
// at work, with what waits for its end.
func startFinisher(ctx context.Context, store *exstore.Store, url, token string) (finished func() error, err error) {
	if store.Shared() {
		return startFinisherProcess(ctx, url, token)
	}
	ready, done := make(chan struct{}), make(chan error, 1)
	go func() { done <- finish(ctx, store, token, func() { close(ready) }) }()
	select {
	case <-ready:
		return func() error { return <-done }, nil
	case err := <-done:
		return nil, err
	}
}

func startFinisherProcess(ctx context.Context, url, token string) (finished func() error, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self, finishArg)
	cmd.Env = append(os.Environ(), "DIBS_URL="+url)
	cmd.Stdin = strings.NewReader(token) // not an argument: all can read these
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || line != attached+"\n" {
		return nil, errors.Join(fmt.Errorf("finisher said %q", line), cmd.Wait())
	}
	return cmd.Wait, nil
}
