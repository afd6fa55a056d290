package kvstore

import (
	"context"
	"sync"
)

// turns make this process's operations on a key follow each other, so they do not conflict. The
// zero value is ready for use.
type turns struct {
	mu    sync.Mutex
	byKey map[string]*turn
}

type turn struct {
	users int           // waiting or in their turn
	taken chan struct{} // full during a turn
}

// wait waits for a key's turn. The caller calls done at its end, unless err is not nil.
func (t *turns) wait(ctx context.Context, key string) (done func(), err error) {
	own := t.join(key)
	select {
	case own.taken <- struct{}{}:
		return func() { <-own.taken; t.leave(key, own) }, nil
	case <-ctx.Done():
		t.leave(key, own)
		return nil, context.Cause(ctx)
	}
}

func (t *turns) join(key string) *turn {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byKey == nil {
		t.byKey = make(map[string]*turn)
	}
	own := t.byKey[key]
	if own == nil {
		own = &turn{taken: make(chan struct{}, 1)}
		t.byKey[key] = own
	}
	own.users++
	return own
}

func (t *turns) leave(key string, own *turn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if own.users--; own.users == 0 {
		delete(t.byKey, key)
	}
}
