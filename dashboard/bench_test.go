package dashboard

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/dibslock/dibs/dashboard/watch"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/driver/ownertoken"
)

// manyStates contains 10,000 held names and 1,000 waiters.
func manyStates() *watch.Snapshot {
	const names, waiters, processes = 10_000, 1000, 50
	s := &watch.Snapshot{Number: 1, At: time.Now(), Began: time.Now()}
	for i := range names {
		h := ownertoken.NewHolder(tokenOf("web", 1+i%processes, driver.KindMutex, 1, "cron"), 0)
		h.Remaining, h.Fence = 20*time.Second, uint64(time.Now().UnixMicro())
		one := driver.State{Name: fmt.Sprintf("order:%05d", i), Holders: []driver.Holder{h}, Holding: 1}
		if i < waiters {
			w := ownertoken.NewWaiter(tokenOf("web", 1+(i+1)%processes, driver.KindMutex, 1, ""), 1, 1)
			w.Waited = time.Duration(i) * time.Millisecond
			one.Waiters, one.Waiting = []driver.Waiter{w}, 1
		}
		s.States = append(s.States, one)
	}
	return s
}

// BenchmarkFrame measures a poll's cost for the dashboard: a view's first fragment.
func BenchmarkFrame(b *testing.B) {
	h := New(nil, Config{}).handler
	s := manyStates()
	for _, name := range []string{viewList, viewProcesses, viewWaits} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, err := h.rendered(b.Context(), newFrame(s), query{view: name, sort: "worst", page: 1}, nil); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkFragment measures another query on the same snapshot: a page in the list.
func BenchmarkFragment(b *testing.B) {
	h := New(nil, Config{}).handler
	f := newFrame(manyStates())
	for _, q := range []query{{view: viewList, sort: "worst", page: 1}, {view: viewList, sort: "name", filter: filter{glob: "order:0*"}, page: 3}} {
		b.Run(q.sort+q.glob, func(b *testing.B) {
			var size int
			for b.Loop() {
				text, err := h.render(b.Context(), f, q, nil)
				if err != nil {
					b.Fatal(err)
				}
				size = len(text)
			}
			b.ReportMetric(float64(size), "bytes")
		})
	}
}

// Only the page's rows are rendered.
func TestFragmentOfManyNames(t *testing.T) {
	h := New(nil, Config{}).handler
	text, err := h.render(t.Context(), newFrame(manyStates()), query{view: viewList, sort: "worst", page: 1}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if rows := bytes.Count(text, []byte("<tr data-row>")); rows != pageRows {
		t.Errorf("%d rows, want %d", rows, pageRows)
	}
}
