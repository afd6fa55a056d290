package kvstore

import (
	"context"
	"sync"
)

// turns let the operations of this process on one key follow each other, so that they do not
// conflict. The zero value is ready for use.
type turns struct {
	mu    sync.Mutex
	byKey map[string]*turn
}

type turn struct {
	users int           // that wait or have the turn
	taken chan struct{} // full while one has it
}

// wait waits for the turn of a key. The caller calls done at its end, unless err is not nil.
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
