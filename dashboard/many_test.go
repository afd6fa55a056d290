package dashboard

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/memstore"
)

// An inspectedStore counts the names read.
type inspectedStore struct {
	*driver.Full
	names atomic.Int64
	took  time.Duration // for each name
}

func (s *inspectedStore) InspectAll(ctx context.Context, names []string) ([]driver.State, error) {
	time.Sleep(time.Duration(len(names)) * s.took)
	s.names.Add(int64(len(names)))
	return s.Full.InspectAll(ctx, names)
}

// With many names, an open page reads its own names and those with waiters. The pages still show
// all names, with their holders.
func TestManyNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const names = 5000
		store := &inspectedStore{Full: driver.Complete(memstore.New()), took: 10 * time.Microsecond}
		for i := range names {
			acquire(t, store, fmt.Sprintf("n%04d", i), tokenOf("web-7", 211, driver.KindMutex, 1, ""))
		}
		acquire(t, store, "n4321", tokenOf("web-9", 88, driver.KindMutex, 1, ""))
		h := New(store, Config{})
		page := body(t, h, "?page=3&sort=name")
		wantText(t, page, "5000 names, counted at", "n0400", "n0599", "held</span> <b>5000</b>")
		if rows, holders := strings.Count(page, "<tr data-row>"), strings.Count(page, ">web-7:211<"); rows != pageRows || holders != pageRows {
			t.Errorf("%d rows with %d holders", rows, holders)
		}
		wantText(t, body(t, h, "?glob=n49*"), "100 of 5000 names", "n4950")
		wantText(t, body(t, h, "waits"), "web-9:88", "n4321")
		wantText(t, body(t, h, "processes"), "web-9:88", "Of 5000 names")
		var answer namesAnswer
		if err := json.Unmarshal([]byte(body(t, h, "api/names?page=2&sort=name")), &answer); err != nil || len(answer.Names) != pageRows || answer.Names[0].Name != "n0200" || len(answer.Names[0].Holders) != 1 {
			t.Errorf("%d names, %v", len(answer.Names), err)
		}

		ctx, cancel := context.WithCancel(t.Context())
		s, wait := open(ctx, h, "events?view=list")
		time.Sleep(1500 * time.Millisecond)
		store.names.Store(0)
		time.Sleep(time.Second)
		if have, most := store.names.Load(), int64(4*pageRows); have > most {
			t.Errorf("a poll reads %d names, want at most %d", have, most)
		}
		cancel()
		wait()
		wantText(t, s.text(), "n4321", "n0000")
	})
}

// The pages do not say that processes with shared permits wait for each other, unless this
// persists.
func TestCycleThatPersists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		one, two := tokenOf("web-1", 1, driver.KindSemaphore, 2, "a"), tokenOf("web-2", 2, driver.KindSemaphore, 2, "b")
		permit := func(name, token string) {
			request(t, s, driver.AcquireRequest{Name: name, Token: token, Weight: 1, Limit: 2})
		}
		permit("pool", one)
		permit("pool", tokenOf("web-3", 3, driver.KindSemaphore, 2, ""))
		acquire(t, s, "order", two)
		permit("pool", two+"x")
		acquire(t, s, "order", one+"x")
		h := New(s, Config{})
		ctx, cancel := context.WithCancel(t.Context())
		stream, wait := open(ctx, h, "events?view=list")
		time.Sleep(1500 * time.Millisecond)
		wantNoText(t, stream.text(), "wait for each other")
		time.Sleep(time.Second)
		wantText(t, stream.text(), "2 processes may wait for each other")
		cancel()
		wait()
	})
}
