// Attempts shows a lock that a process acquires and another releases. The owner token
// is a request ID. Meanwhile a second request makes a fixed number of attempts.
//
//	go run ./examples/attempts                                      in one process
//	DIBS_URL=redis://localhost:6379 go run ./examples/attempts      with a second process
package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
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

// finishArg makes this program the finisher: the process that completes the first request. The
// finisher prints attached when it is attached to the lock.
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
		text, err := io.ReadAll(os.Stdin)
		if err != nil {
			return err
		}
		return finish(ctx, store, text, func() { fmt.Fprintln(out, attached) })
	}
	fmt.Fprintf(out, "locks on %s\n", store.Description)
	return runRequests(ctx, store, url, out)
}

// runRequests runs two requests. The first passes its lock to the finisher. The second
// arrives while the lock is held.
func runRequests(ctx context.Context, store *exstore.Store, url string, out io.Writer) error {
	locks := dibs.New(store)
	defer locks.Close()
	first, err := lockWithAttempts(ctx, locks)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "first:    holds %s as %s\n", name, first.Token())

	handle, err := first.Handle().MarshalText()
	if err != nil {
		return err
	}
	finished, err := startFinisher(ctx, store, url, handle)
	if err != nil {
		return err
	}
	begin := time.Now()
	fmt.Fprintln(out, "second:   tries 10 times, 100 ms apart")
	second, err := lockWithAttempts(ctx, locks)
	if err != nil {
		return errors.Join(err, finished())
	}
	fmt.Fprintf(out, "second:   acquired it after %v\n", time.Since(begin).Round(100*time.Millisecond))
	if err := finished(); err != nil {
		return err
	}
	// The finisher released the first request's lease.
	if err := first.Unlock(); !errors.Is(err, dibs.ErrLost) {
		return fmt.Errorf("unlock of the first lease: want ErrLost, have %w", err)
	}
	fmt.Fprintln(out, "first:    released by the finisher")
	return second.Unlock()
}

// lockWithAttempts acquires the lock with a new request ID as its owner token. It makes
// ten attempts.
func lockWithAttempts(ctx context.Context, locks *dibs.Client) (*dibs.Lease, error) {
	// Whoever knows the ID can release the lock, so it must be hard to guess.
	id := "req-" + rand.Text()
	return locks.Mutex(name).Lock(ctx, dibs.Attempts(10, 100*time.Millisecond), dibs.OwnerToken(id))
}

// finish does the rest of the work and releases the lock, by the text of its handle.
func finish(ctx context.Context, store driver.Store, text []byte, ready func()) error {
	locks := dibs.New(store) // independent of the client that acquired the lock
	defer locks.Close()
	var handle dibs.Handle
	if err := handle.UnmarshalText(text); err != nil {
		return err
	}
	lease, err := locks.Attach(ctx, handle)
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

// startFinisher starts the finisher in another process, which runs this program. If other
// processes cannot reach the store, a goroutine with another client is used instead. It
// returns when the finisher has attached. finished waits for its end.
func startFinisher(ctx context.Context, store *exstore.Store, url string, handle []byte) (finished func() error, err error) {
	if store.Shared() {
		return startFinisherProcess(ctx, url, handle)
	}
	ready, done := make(chan struct{}), make(chan error, 1)
	go func() { done <- finish(ctx, store, handle, func() { close(ready) }) }()
	select {
	case <-ready:
		return func() error { return <-done }, nil
	case err := <-done:
		return nil, err
	}
}

func startFinisherProcess(ctx context.Context, url string, handle []byte) (finished func() error, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self, finishArg)
	cmd.Env = append(os.Environ(), "DIBS_URL="+url)
	cmd.Stdin = bytes.NewReader(handle) // not an argument: arguments are visible to all users
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
		return nil, errors.Join(fmt.Errorf("the finisher printed %q", line), cmd.Wait())
	}
	return cmd.Wait, nil
}
