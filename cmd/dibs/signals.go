package main

import (
	"context"
	"errors"
	"os"
	"syscall"
	"time"

	"github.com/dibslock/dibs/cmd/dibs/internal/supervise"
)

// signals are the signals that this process receives. A running command gets them; see
// supervise.CatchSignals.
type signals chan os.Signal

// A signalError reports that a signal ended the wait.
type signalError struct{ syscall.Signal }

func (e signalError) Error() string { return "signal: " + e.Signal.String() }

// context returns a context that a termination signal cancels, until stop is called.
//
// stop returns the signal, or nil. Callers must check it: a signal may arrive too late to be seen
// through the context. Other signals are dropped.
//
// The context ends 100 ms after the signal. By then, an operation in flight has usually completed;
// cancelling it at once would cost seconds for clean-up. A second signal cancels without this
// delay.
func (s signals) context() (ctx context.Context, stop func() error) {
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
			case caught := <-s:
				switch n, _ := caught.(syscall.Signal); {
				case asked.repeated(n):
					cancel(asked.first)
				case asked.first == nil && supervise.IsTermination(n):
					asked.first, asked.at = signalError{n}, time.Now()
					time.AfterFunc(grace, func() { cancel(asked.first) })
				case n == syscall.SIGTSTP:
					stopUnderShell()
				}
			}
		}
	}()
	return ctx, func() error {
		close(over)
		cancel(nil)
		asked := <-done
		if asked.first != nil {
			go s.exitOnSecond(asked)
		}
		return asked.first
	}
}

// stopUnderShell stops this process, as ^Z does, if there is a shell that can continue it.
func stopUnderShell() {
	if supervise.HasJobControl() {
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP) // always permitted
	}
}

// exitOnSecond makes dibs exit soon after another termination signal.
func (s signals) exitOnSecond(asked *endRequest) {
	for caught := range s {
		if n, _ := caught.(syscall.Signal); asked.repeated(n) {
			return
		}
	}
}

// An endRequest records the first termination signal.
type endRequest struct {
	first error
	at    time.Time
}

// repeated reports whether s is a second termination signal. If so, it makes dibs exit after 500
// ms, whether or not the store answers. This is enough time to leave the wait queue. The same
// signal twice within 1 s counts once: timeout(1) signals its child and then the child's whole
// group.
func (a *endRequest) repeated(s syscall.Signal) bool {
	const instant, soon = time.Second, 500 * time.Millisecond
	if a.first == nil || !supervise.IsTermination(s) || errors.Is(a.first, signalError{s}) && time.Since(a.at) < instant {
		return false
	}
	time.AfterFunc(soon, func() {
		die(s)
		os.Exit(supervise.CodeSignal + int(s))
	})
	return true
}
