package zkstore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/zkstore"
	"github.com/go-zookeeper/zk"
)

// visit acquires and releases a name some times, and returns the fences.
func visit(t *testing.T, s *zkstore.Store, name string, times int) (fences []uint64) {
	t.Helper()
	for i := range times {
		r := request(name, fmt.Sprint("token-", i), 5*time.Second)
		fences = append(fences, wantHeld(t, s, r).Fence)
		release(t, s, name, r.Token)
	}
	return fences
}

func wantGrowing(t *testing.T, fences []uint64) {
	t.Helper()
	for i := 1; i < len(fences); i++ {
		if fences[i] <= fences[i-1] {
			t.Fatalf("the fences %d do not grow", fences)
		}
	}
}

// A process that uses a name alone should not read the queue for each lease.
func TestAloneSendsTwoRequests(t *testing.T) {
	const times = 50
	c, server := dibs.New(newStore(t), dibs.TTL(5*time.Second)), sharedServer(t)
	defer func() { must(t, c.Close()) }()
	visit := func(times int) (fences []uint64) {
		for range times {
			l := lock(t, c, "a")
			fences = append(fences, l.Fence())
			unlock(t, l)
		}
		return fences
	}
	visit(4)
	before := counters(t, server)
	wantGrowing(t, visit(times))
	const others = times / 2 // of the sessions
	if sent := counters(t, server).since(before).received; sent > 2*times+others {
		t.Errorf("%v requests for %d leases", sent, times)
	}
}

// The fences of processes that use a name in turn should grow, and so should those of each process.
func TestFencesOfVisits(t *testing.T) {
	stores := processes(t, 2)
	var fences []uint64
	for range 3 {
		for _, s := range stores {
			fences = append(fences, visit(t, s, "a", 5)...)
		}
	}
	wantGrowing(t, fences)
}

// A queue's znode that was created again can give an entry the number that would follow, while others
// hold the name.
func TestQueueCreatedAgain(t *testing.T) {
	const times = 5
	prefix := newPrefix()
	s, conn := open(t, endpoints(sharedServer(t)), zkstore.Prefix(prefix)), connect(t, sharedServer(t))
	visit(t, s, "a", times)
	queue := prefix + "/a"
	must(t, conn.Delete(queue, -1))
	create(t, conn, queue, "")
	for range times {
		_, err := conn.Create(queue+"/_c_other-lock-", nil, zk.FlagEphemeral|zk.FlagSequence, everybody)
		must(t, err)
	}
	wantBusy(t, s, request("a", "late", 5*time.Second))
}

// Another holder should be seen, whether it was there before or came between.
func TestVisitsOfOthers(t *testing.T) {
	stores := processes(t, 2)
	visit(t, stores[0], "a", 5)
	other := wantHeld(t, stores[1], request("a", "other", 5*time.Second))
	wantBusy(t, stores[0], request("a", "late", 5*time.Second))
	release(t, stores[1], "a", "other")
	eventually(t, patience, func() error {
		reply := acquire(t, stores[0], request("a", "late", 5*time.Second))
		if !reply.Held || reply.Fence <= other.Fence {
			return fmt.Errorf("%+v", reply)
		}
		return nil
	})
	release(t, stores[0], "a", "late")
	visit(t, stores[0], "a", 5)
	wantHeld(t, stores[1], driver.AcquireRequest{Name: "a", Token: "again", Client: "c", TTL: 5 * time.Second, Weight: 1, Limit: 1})
}
