package dibsslog

import (
	"log/slog"
	"math"
	"time"

	"github.com/dibslock/dibs"
)

// Off is the level of an event that is not logged, whatever the handler enables.
const Off = slog.Level(math.MinInt32)

// A Config sets the events' levels. Nil means the default level in the comment. Use Off to turn an
// event off, or a *slog.LevelVar to change a level later. The zero value is ready for use.
type Config struct {
	Acquired slog.Leveler // a call that returned a lease: Debug
	Slow     slog.Leveler // instead of Acquired, after a wait of SlowWait or longer: Warn
	Busy     slog.Leveler // a call without a lease, because the lock was held, or the context ended: Debug
	Failed   slog.Leveler // a call without a lease for another reason, such as the store: Warn

	RenewFailed slog.Leveler // a renewal whose outcome is unknown: Warn
	Lost        slog.Leveler // a lost lease: Error
	Closed      slog.Leveler // a lease ended by Client.Close: Info

	Released      slog.Leveler // an Unlock: Debug
	ReleaseFailed slog.Leveler // a failed Unlock: Warn

	TermFailed slog.Leveler // a failed campaign in Election.Run: Warn
	Degraded   slog.Leveler // the store cannot notify waiters: Warn
	Recovered  slog.Leveler // the store can notify waiters again: Info

	// SlowWait is the shortest wait after which an acquired lock is logged as Slow. Zero means that
	// no wait is slow.
	SlowWait time.Duration

	// RenewFailedEvery is the shortest time between two RenewFailed lines. While the store is down,
	// the renewals of all leases fail again and again. At the end of this time the last failure
	// gets a line, with the number of earlier failures without a line, as suppressed. Zero means 1
	// s. A negative value means that each failure gets a line.
	RenewFailedEvery time.Duration
}

// Hooks returns hooks for dibs.Observe, which log to a logger. Nil means slog.Default() at the time
// of each line, so slog.SetDefault can be called later. Given to dibs.New, they see all events.
// Given to a lock or a call, they do not see Degraded. Clients can share them.
func Hooks(logger *slog.Logger, c Config) dibs.Hooks {
	c.setDefaults()
	l := &lines{logger: logger, config: c, renewFailures: limiter{every: c.RenewFailedEvery}}
	return dibs.Hooks{
		AcquireEnd: l.acquireEnd, RenewFailed: l.renewFailed, Lost: l.lost,
		Released: l.released, TermFailed: l.termFailed, Degraded: l.degraded,
	}
}

func (c *Config) setDefaults() {
	for _, d := range []struct {
		level    *slog.Leveler
		standard slog.Level
	}{
		{&c.Acquired, slog.LevelDebug}, {&c.Slow, slog.LevelWarn}, {&c.Busy, slog.LevelDebug}, {&c.Failed, slog.LevelWarn},
		{&c.RenewFailed, slog.LevelWarn}, {&c.Lost, slog.LevelError}, {&c.Closed, slog.LevelInfo},
		{&c.Released, slog.LevelDebug}, {&c.ReleaseFailed, slog.LevelWarn},
		{&c.TermFailed, slog.LevelWarn}, {&c.Degraded, slog.LevelWarn}, {&c.Recovered, slog.LevelInfo},
	} {
		if *d.level == nil {
			*d.level = d.standard
		}
	}
	if c.RenewFailedEvery == 0 {
		c.RenewFailedEvery = time.Second
	}
}
