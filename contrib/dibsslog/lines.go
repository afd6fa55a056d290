package dibsslog

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"time"

	"github.com/dibslock/dibs"
)

// lines writes the log lines.
type lines struct {
	logger        *slog.Logger // nil: slog.Default
	config        Config
	renewFailures limiter
}

// log returns the logger. The default logger is the current: slog.SetDefault makes the earlier
// default print each line as another line's message.
func (l *lines) log() *slog.Logger {
	if l.logger == nil {
		return slog.Default()
	}
	return l.logger
}

// enabled returns an event's level, and whether it is logged.
func (l *lines) enabled(ctx context.Context, of slog.Leveler) (slog.Level, bool) {
	level := of.Level()
	return level, level != Off && l.log().Enabled(ctx, level)
}

func (l *lines) acquireEnd(ctx context.Context, e dibs.AcquireEnd) {
	event, message := l.outcome(&e)
	level, ok := l.enabled(ctx, event)
	if !ok {
		return
	}
	attributes := describe(&e.LockInfo)
	if e.Err == nil {
		attributes = append(attributes, slog.Uint64("fence", e.Fence))
	}
	attributes = append(attributes, slog.Duration("waited", e.Waited))
	if e.Notified {
		attributes = append(attributes, slog.Bool("notified", true))
	}
	l.log().LogAttrs(ctx, level, message, withError(attributes, e.Err)...)
}

// outcome returns a call's level and message.
func (l *lines) outcome(e *dibs.AcquireEnd) (of slog.Leveler, message string) {
	switch {
	case e.Err == nil && l.config.SlowWait > 0 && e.Waited >= l.config.SlowWait:
		return l.config.Slow, "lock acquired after a long wait"
	case e.Err == nil:
		return l.config.Acquired, "lock acquired"
	case errors.Is(e.Err, dibs.ErrBusy):
		return l.config.Busy, "lock not acquired: busy"
	case errors.Is(e.Err, context.Canceled), errors.Is(e.Err, context.DeadlineExceeded) && !errors.Is(e.Err, dibs.ErrUnavailable):
		return l.config.Busy, "lock not acquired: the context ended"
	}
	return l.config.Failed, "lock not acquired"
}

func (l *lines) renewFailed(ctx context.Context, e dibs.RenewFailed) {
	if level, ok := l.enabled(ctx, l.config.RenewFailed); ok {
		l.logRenewFailed(ctx, level, e)
	}
}

// logRenewFailed is a separate function, because it keeps the event for a later line. The line
// contains the event's time, which can come before the lease's loss.
func (l *lines) logRenewFailed(ctx context.Context, level slog.Level, e dibs.RenewFailed) {
	var caller [1]uintptr
	runtime.Callers(1, caller[:]) // the line's source, as in LogAttrs
	at := time.Now()
	l.renewFailures.log(func(suppressed int) {
		line := slog.NewRecord(at, level, "lease not yet renewed", caller[0])
		line.AddAttrs(describe(&e.LockInfo)...)
		line.AddAttrs(slog.Duration("left", max(e.Left, 0)))
		if suppressed > 0 {
			line.AddAttrs(slog.Int("suppressed", suppressed))
		}
		line.AddAttrs(withError(nil, e.Err)...)
		_ = l.log().Handler().Handle(ctx, line) // slog also ignores the error
	})
}

func (l *lines) lost(ctx context.Context, e dibs.Lost) {
	event, message := l.config.Lost, "lease lost"
	if e.Reason == dibs.ReasonClosed {
		event, message = l.config.Closed, "lease ended by Close"
	}
	level, ok := l.enabled(ctx, event)
	if !ok {
		return
	}
	attributes := append(describe(&e.LockInfo), slog.Uint64("fence", e.Fence),
		slog.Duration("held", e.Held), slog.String("reason", string(e.Reason)))
	l.log().LogAttrs(ctx, level, message, withError(attributes, e.Err)...)
}

func (l *lines) released(ctx context.Context, e dibs.Released) {
	event, message := l.config.Released, "lock released"
	if e.Err != nil {
		event, message = l.config.ReleaseFailed, "lock not released"
	}
	level, ok := l.enabled(ctx, event)
	if !ok {
		return
	}
	attributes := append(describe(&e.LockInfo), slog.Uint64("fence", e.Fence), slog.Duration("held", e.Held))
	l.log().LogAttrs(ctx, level, message, withError(attributes, e.Err)...)
}

func (l *lines) termFailed(ctx context.Context, e dibs.TermFailed) {
	level, ok := l.enabled(ctx, l.config.TermFailed)
	if !ok {
		return
	}
	attributes := []slog.Attr{slog.String("name", e.Name), slog.Duration("retry", e.RetryIn)}
	l.log().LogAttrs(ctx, level, "campaign failed", withError(attributes, e.Err)...)
}

func (l *lines) degraded(ctx context.Context, e dibs.Degraded) {
	event, message := l.config.Degraded, "waiters poll: the lock store cannot notify them"
	if e.Err == nil {
		event, message = l.config.Recovered, "waiters are notified again"
	}
	if level, ok := l.enabled(ctx, event); ok {
		l.log().LogAttrs(ctx, level, message, withError(nil, e.Err)...)
	}
}

// describe returns a lock's attributes, with room for an event's.
func describe(info *dibs.LockInfo) []slog.Attr {
	attributes := append(make([]slog.Attr, 0, 9), slog.String("name", info.Name()))
	if len(info.Names) > 1 {
		attributes = append(attributes, slog.Any("more", info.Names[1:]))
	}
	attributes = append(attributes, slog.String("kind", string(info.Kind)))
	if info.Label != "" {
		attributes = append(attributes, slog.String("label", info.Label))
	}
	return attributes
}

// withError appends the message of an error. It is text, because some handlers would print the fields
// of an error.
func withError(attributes []slog.Attr, err error) []slog.Attr {
	if err == nil {
		return attributes
	}
	return append(attributes, slog.String("err", err.Error()))
}
