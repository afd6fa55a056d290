package dashboard

import "sync"

// A memo keeps functions that compute a value once, such as sync.OnceValue's. The zero value is
// empty. It is safe for concurrent use.
type memo[K comparable, F any] struct {
	mu   sync.Mutex
	kept map[K]F
}

// of returns a key's function. The first function is kept as once makes it, unless there are
// already most functions: then it is returned as it is.
func (m *memo[K, F]) of(key K, most int, compute F, once func(F) F) F {
	m.mu.Lock()
	defer m.mu.Unlock()
	if kept, found := m.kept[key]; found {
		return kept
	}
	if len(m.kept) >= most {
		return compute
	}
	if m.kept == nil {
		m.kept = make(map[K]F)
	}
	m.kept[key] = once(compute)
	return m.kept[key]
}
