package main

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/cmd/dibs/internal/supervise"
	"github.com/dibslock/dibs/dashboard/view"
)

// An outcome is the result from run or elect, as written to --status-file.
type outcome struct {
	Schema int       `json:"schema"`
	Names  []string  `json:"names"`
	Store  string    `json:"store,omitempty"` // without credentials; empty if it was not opened
	Begun  time.Time `json:"begun"`
	Result string    `json:"result"` // ran, busy, lost, max-hold, signal, trouble
	Fence  uint64    `json:"fence,omitempty"`
	Waited int64     `json:"waited_ms"`
	Held   int64     `json:"held_ms"`
	Away   int64     `json:"away_ms,omitempty"` // total time without an answer from the store
	Code   *int      `json:"code"`              // the command's; null if none ran
	Exit   int       `json:"exit_code"`         // dibs' exit code
	Error  string    `json:"error,omitempty"`
}

// finish completes the outcome, reports it with --json and --status-file, and returns err
// with the store and a hint.
func (r *run) finish(err error) error {
	o := &r.outcome
	o.Exit, o.Result = 0, "ran"
	if r.session != nil {
		err = r.store.explain(err)
		o.Away = r.monitor.TotalOutage().Milliseconds()
	}
	if r.acquired.IsZero() {
		o.Waited = time.Since(r.waiting).Milliseconds()
	}
	if err != nil {
		o.Exit = codeOf(err)
		if !silent(err) {
			o.Error = view.ErrorText(err)
		}
		o.Result = r.result(err)
	}
	if r.session != nil {
		r.con.event(view.EndedEvent{
			Stamp: stamp("ended"), Names: o.Names, Store: o.Store, Fence: o.Fence,
			Waited: o.Waited, Held: o.Held, Away: o.Away, Code: o.Exit,
		})
	}
	if r.statusFile == "" {
		return err
	}
	f, failed := os.Create(r.statusFile)
	if failed == nil {
		failed = errors.Join(view.WriteLine(f, o), f.Close())
	}
	if failed != nil {
		r.con.printError(fmt.Errorf("status file: %w", failed), o.Exit)
	}
	return err
}

// result returns the Result for an outcome with an error.
func (r *run) result(err error) string {
	switch {
	case errors.As(err, new(signalError)):
		return "signal"
	case errors.As(err, new(busyResult)):
		return "busy"
	case r.acquired.IsZero():
		return "trouble"
	case errors.Is(err, supervise.ErrMaxHold):
		return "max-hold"
	case errors.Is(err, dibs.ErrLost):
		return "lost"
	case !silent(err): // the command could not be run
		return "trouble"
	}
	return "ran"
}
