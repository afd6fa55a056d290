package zkstore

import "fmt"

// CheckUses returns an error unless each session is used by its records and by nothing else. No call
// may be under way.
func (s *Store) CheckUses() error {
	type use struct{ uses, size int }
	want := make(map[*session]use)
	s.records.mu.Lock()
	for _, r := range s.records.all {
		u := want[r.session]
		want[r.session] = use{u.uses + 1, u.size + s.keys.size(r.name)}
	}
	s.records.mu.Unlock()
	s.sessions.mu.Lock()
	defer s.sessions.mu.Unlock()
	for on := range s.sessions.begun {
		on.mu.Lock()
		got := use{on.uses, on.size}
		on.mu.Unlock()
		if got != want[on] {
			return fmt.Errorf("a session of %v has %+v, but its records are %+v", on.asked, got, want[on])
		}
	}
	return nil
}

// Records returns how many entries the store knows.
func (s *Store) Records() int {
	s.records.mu.Lock()
	defer s.records.mu.Unlock()
	return len(s.records.all)
}
