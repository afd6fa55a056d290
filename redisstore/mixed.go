package redisstore

import (
	"sync"
	"time"

	"github.com/dibslock/dibs/driver"
)

// pollMixed is how often the first waiter polls behind a foreign holder. The name is free only for
// a moment, before another polling client acquires it.
const pollMixed = 2 * time.Millisecond

// completeWait completes the reply to a waiter that must poll. If the holder is foreign, the name
// is mixed. If this is a guess, the first poll decides.
func (s *Store) completeWait(reply *driver.AcquireReply, guessed bool) {
	reply.Poll = pollMixed
	if reply.Holder != "" && !guessed {
		s.mixed.see(reply.Name)
	}
}

// mixedNames are the names that other libraries' clients also hold. Each such client polls. So a
// release of such a name sometimes leaves it free, instead of a hand-off to the next waiter: see
// leave_free.lua. It is safe for concurrent use.
type mixedNames struct {
	always bool // all names: see SharedKeys

	mu    sync.Mutex
	seen  map[string]time.Time // name → when a foreign holder was last seen
	swept time.Time
}

// mixedFor is for how long a name counts as mixed after a foreign holder was seen.
const mixedFor = 30 * time.Second

// see records that a foreign holder was seen.
func (m *mixedNames) see(name string) {
	if m.always {
		return
	}
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.seen == nil {
		m.seen = make(map[string]time.Time)
	}
	m.seen[name] = now
	if now.Sub(m.swept) < mixedFor {
		return
	}
	m.swept = now
	for name, at := range m.seen {
		if now.Sub(at) >= mixedFor {
			delete(m.seen, name)
		}
	}
}

// has reports whether a name is mixed.
func (m *mixedNames) has(name string) bool {
	if m.always {
		return true
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	at, found := m.seen[name]
	return found && time.Since(at) < mixedFor
}
