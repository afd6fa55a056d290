package dibs

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/dibslock/dibs/internal/acquire"
)

// CallSettings contains a call's option values: for each option the value from the nearest level,
// or its default.
type CallSettings struct {
	Name      string // the lock's name
	TTL       time.Duration
	Wait      time.Duration // negative: the call queues until its context ends
	Timeout   time.Duration
	MaxHold   time.Duration // zero: none
	MinHold   time.Duration // zero: none
	Attempts  int           // zero: the call queues
	Label     string
	Token     Token // empty: dibs generates a token
	NoRenew   bool
	Reentrant bool
	Observed  bool // the option Observe was given to the call

	// Closing is closed when the call must stop waiting, because Shutdown or Close of the Client
	// began. A call under a lock may still wait during Shutdown, so its Closing is closed only by
	// Close. The context of such a call carries a lease of this Client, or a fence from WithFence.
	Closing <-chan struct{} `json:"-"`
}

// CallSettings returns the settings Lock would use with this context and these options. It is for
// packages that build on Mutex and apply their own limits, such as package cohort. It returns the
// error of a call that Lock would reject before sending anything: ErrInvalid, ErrReentrant,
// ErrClosed, or the cause of an ended context. It does no I/O and calls no hooks.
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
