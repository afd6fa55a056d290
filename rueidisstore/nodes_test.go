package rueidisstore_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/dibslock/dibs/internal/test/drill"
	"github.com/dibslock/dibs/internal/test/redistest"
	"github.com/dibslock/dibs/rueidisstore"
	"github.com/redis/rueidis"
)

// A client should list the names on a master added after it had connected.
func TestNewMaster(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3, 0)
	store := rueidisstore.New(dial(t, cluster.Addrs()[0]))
	if list, err := store.List(t.Context(), "*"); err != nil || len(list) > 0 {
		t.Fatalf("%q, %v, want no names", list, err)
	}
	added := cluster.AddMaster(t)
	drill.Lock(t, open(t, dial(t, cluster.Addrs()[0])), job)
	if err := cluster.Migrate(added, redistest.Slot(key)); err != nil {
		t.Fatal(err)
	}
	if list, err := store.List(t.Context(), "*"); err != nil || !slices.Equal(list, []string{job}) {
		t.Errorf("%q, %v, want %q", list, err, job)
	}
}

// Names in all slots should be locked concurrently, and a slot should be able to move while its
// name is locked.
func TestSlots(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3, 0)
	client := dial(t, cluster.Addrs()[0])
	locks := open(t, client)
	var names []string
	for i := range 60 {
		names = append(names, fmt.Sprintf("name-%d", i))
	}
	forAll := func(f func(name string)) {
		var group sync.WaitGroup
		for _, name := range names {
			group.Go(func() { f(name) })
		}
		group.Wait()
	}
	forAll(func(name string) { drill.Unlock(t, drill.Lock(t, locks, name)) })
	list, err := rueidisstore.New(client).List(t.Context(), "*")
	if err != nil || len(list) > 0 {
		t.Errorf("%q, %v, want no names", list, err)
	}
	held := drill.Lock(t, locks, job)
	slot := redistest.Slot(key)
	from, err := cluster.MasterOf(slot)
	if err != nil {
		t.Fatal(err)
	}
	to := cluster.Nodes()[0]
	if to == from {
		to = cluster.Nodes()[1]
	}
	if err := cluster.Migrate(to, slot); err != nil {
		t.Fatal(err)
	}
	drill.Unlock(t, held)
	forAll(func(name string) { drill.Lock(t, locks, name) })
	list, err = rueidisstore.New(client).List(t.Context(), "*")
	slices.Sort(list)
	slices.Sort(names)
	if err != nil || !slices.Equal(list, names) {
		t.Errorf("%q, %v, want all of %q", list, err, names)
	}
}

// List visits masters only, so it works while a replica is down.
func TestListWithReplicas(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3, 1)
	client := dial(t, cluster.Addrs()[0])
	drill.Lock(t, open(t, client), job)
	var replica *redistest.Server
	for _, s := range cluster.Nodes() {
		if role, _ := s.MustCmd(t, "ROLE").([]any); role[0] == "slave" {
			replica = s
		}
	}
	replica.Kill()
	list, err := rueidisstore.New(client).List(drill.Within(t, drill.Generous), "*")
	if err != nil || !slices.Equal(list, []string{job}) {
		t.Errorf("%q, %v, want one name", list, err)
	}
}

// After a planned failover, locks work on the new master.
func TestPlannedFailover(t *testing.T) {
	t.Parallel()
	group := redistest.StartSentinels(t, 1, 3)
	client := dial(t, "", func(o *rueidis.ClientOption) {
		o.InitAddress, o.Sentinel.MasterSet = group.Addrs(), group.MasterName
	})
	if client.Mode() != rueidis.ClientModeSentinel {
		t.Fatalf("the client has the mode %s", client.Mode())
	}
	locks := open(t, client)
	drill.Unlock(t, drill.Lock(t, locks, job))
	if _, err := group.Failover(); err != nil {
		t.Fatal(err)
	}
	drill.Eventually(t, "locking works again", func() bool {
		l, err := locks.Mutex(job).Lock(drill.Within(t, drill.Generous))
		return err == nil && l.Unlock() == nil
	})
}
