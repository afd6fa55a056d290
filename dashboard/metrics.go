package dashboard

import (
	"cmp"
	"sync"
	"time"

	"github.com/dibslock/dibs/dashboard/view"
	"github.com/dibslock/dibs/dashboard/watch"
	"github.com/dibslock/dibs/observe/classes"
)

// metrics count the polls' results. They are safe for concurrent use.
type metrics struct {
	classes *classes.Set[*classMetrics]

	mu       sync.Mutex // protects the fields below, and all values in classes
	polls    int
	failed   int
	pollTime time.Duration // sum over all polls
	answered time.Time     // the last successful poll
}

// A classMetrics counts events for a class of names.
type classMetrics struct {
	class    string
	acquired map[acquisition]*histogram
	revoked  int
}

// An acquisition is how a lease began: its histogram's labels.
type acquisition struct{ kind, result string }

func (a acquisition) compare(b acquisition) int {
	return cmp.Or(cmp.Compare(a.kind, b.kind), cmp.Compare(a.result, b.result))
}

// The values for the label result, as in a client's metrics.
const (
	resultAcquired = "acquired"
	resultNotified = "notified"
)

func newMetrics() *metrics {
	return &metrics{classes: classes.NewSet(nil, classes.DefaultLimit, func(class string) *classMetrics {
		return &classMetrics{class: class, acquired: make(map[acquisition]*histogram)}
	})}
}

// grantOf returns how a lease began, if a change is its beginning.
func grantOf(c view.Change) (a acquisition, granted bool) {
	if c.Holder == nil {
		return a, false
	}
	a.kind = cmp.Or(c.Holder.Kind, view.KindForeign)
	switch c.Event {
	case view.EventAcquired:
		a.result = resultAcquired
	case view.EventHandedOff:
		a.result = resultNotified
	}
	return a, a.result != ""
}

// grantsOf returns how many leases began.
func grantsOf(changes []view.Change) (n int) {
	for _, c := range changes {
		if _, granted := grantOf(c); granted {
			n++
		}
	}
	return n
}

// add counts a poll and its results.
func (m *metrics) add(s *watch.Snapshot) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.polls++
	m.pollTime += s.Took
	if s.Err != nil {
		m.failed++
		return
	}
	m.answered = s.At
	for _, c := range s.Changes {
		a, granted := grantOf(c)
		if !granted {
			continue
		}
		of := m.classes.Of(c.Name)
		if of.acquired[a] == nil {
			of.acquired[a] = newHistogram()
		}
		of.acquired[a].add(time.Duration(c.Waited) * time.Millisecond)
	}
}

// addRevocation counts a revocation.
func (m *metrics) addRevocation(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.classes.Of(name).revoked++
}
