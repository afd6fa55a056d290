package dibs

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/dibslock/dibs/internal/acquire"
)

// CallSettings are the values of the options that a call uses, after all levels. Those that were
// not given have their defaults.
type CallSettings struct {
	Name      string // of the lock
	TTL       time.Duration
	Wait      time.Duration // negative: the call queues until its context ends
	Timeout   time.Duration
	MaxHold   time.Duration // zero: none
	MinHold   time.Duration // zero: none
	Attempts  int           // zero: the call queues
	Label     string
	Token     Token // empty: dibs makes one
	NoRenew   bool
	Reentrant bool
	Observed  bool // Observe was given to the call

	// Closing is closed when the Client shuts down or closes, and the call may not wait any longer. A
	// call of work under a lock may wait until Close: see Client.Shutdown.
	Closing <-chan struct{} `json:"-"`
}

// CallSettings returns what Lock would use with this context and these options. It is for packages
// that build on the Mutex and have limits of their own, such as package cohort. It returns the error
// of a call that Lock would reject before it sends anything: ErrInvalid, ErrReentrant, ErrClosed, or
// the cause of a context that has ended. It does no I/O and calls no hooks.
func (m *Mutex) CallSettings(ctx context.Context, options ...Option) (CallSettings, error) {
	set := m.settings.with(atCall, options)
	w := m.spec()
	if err := cmp.Or(m.c.check(), set.check(m.name)); err != nil {
		return CallSettings{}, err
	}
	if l := leaseIn(ctx, m.c, w); l != nil && !set.reentrant {
		_, err := l.reenter(w, false)
		return CallSettings{}, err
	}
	life := acquire.Limits{Continues: continuesWork(ctx, m.c)}.Life(m.c.work)
	switch {
	case ctx.Err() != nil:
		return CallSettings{}, fmt.Errorf("dibs: acquire %q: %w", m.name, context.Cause(ctx))
	case life.Err() != nil:
		return CallSettings{}, ErrClosed
	}
	return CallSettings{
		Name: m.name, TTL: set.ttl, Wait: max(set.limit.wait, -1), Timeout: set.timeout, MaxHold: set.maxHold, MinHold: set.minHold, Attempts: set.limit.attempts,
		Label: set.label, Token: Token(set.token), NoRenew: set.noRenew, Reentrant: set.reentrant, Observed: set.given[atCall].has(observeOption), Closing: life.Done(),
	}, nil
}
