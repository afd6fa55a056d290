package redisstore_test

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/test/redistest"
	"github.com/dibslock/dibs/quorum"
	"github.com/dibslock/dibs/redisstore"
	"github.com/dibslock/dibs/storetest"
)

func TestVotes(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	var stores atomic.Int32
	t.Run("contract", func(t *testing.T) {
		storetest.RunVotes(t, func(t *testing.T) driver.Voter {
			return open(t, server, redisstore.Prefix(fmt.Sprintf("%d:", stores.Add(1))))
		})
	})
	wantExpiringKeys(t, server)
}

func TestQuorum(t *testing.T) {
	t.Parallel()
	servers := []*redistest.Server{redistest.Start(t), redistest.Start(t), redistest.Start(t)}
	var stores atomic.Int32
	newQuorum := func(t *testing.T) *driver.Full {
		prefix := fmt.Sprintf("%d:", stores.Add(1))
		var nodes []driver.Voter
		for _, server := range servers {
			nodes = append(nodes, open(t, server, redisstore.Prefix(prefix)))
		}
		q, err := quorum.New(nodes, quorum.MaxTTL(driver.MaxTTL), quorum.DurableNodes())
		if err != nil {
			t.Fatal(err)
		}
		return driver.Complete(q)
	}
	t.Run("contract", func(t *testing.T) {
		for _, c := range append(storetest.Cases(), storetest.LostReplyCases()...) {
			if strings.HasPrefix(c.Name, "reserve for long") {
				continue // a quorum reserves for at most its MaxTTL
			}
			t.Run(c.Name, func(t *testing.T) {
				t.Parallel()
				c.Run(t, newQuorum(t))
			})
		}
	})
	for _, server := range servers {
		wantExpiringKeys(t, server)
	}
}

// A server without any granted fence starts with 1, if the vote request requires none.
func TestFirstFence(t *testing.T) {
	t.Parallel()
	for _, handOff := range []bool{false, true} {
		t.Run(fmt.Sprint(handOff), func(t *testing.T) {
			server := redistest.Start(t)
			store := open(t, server)
			request := driver.AcquireRequest{Name: "n", Token: "a", Client: "client", Seq: 1, TTL: time.Hour, Weight: 1, Limit: 1, Vote: &driver.Vote{Ticket: 1}}
			for want := uint64(1); want <= 2; want++ {
				if handOff { // another script reads the high-water mark
					server.MustCmd(t, "DEL", "lock:n")
				}
				if a, err := store.Acquire(t.Context(), request); err != nil || !a.Held || a.Fence != want {
					t.Fatalf("%+v, %v, want fence %d", a, err, want)
				}
			}
		})
	}
}

// voter sends vote requests to a single server.
type voter struct {
	t     *testing.T
	store *redisstore.Store
	seq   uint64
}

const recoveryWindow = time.Minute

// vote requests a name, with a new token.
func (v *voter) vote(name string) (driver.AcquireReply, error) {
	v.t.Helper()
	v.seq++
	return v.voteAgain(name, v.seq)
}

func (v *voter) voteAgain(name string, seq uint64) (driver.AcquireReply, error) {
	v.t.Helper()
	for {
		a, err := v.store.Acquire(v.t.Context(), driver.AcquireRequest{
			Name: name, Token: fmt.Sprint("token:", seq), Client: "client", Seq: seq, TTL: time.Hour,
			Weight: 1, Limit: 1, Queue: true, Until: time.Now().Add(generous),
			Vote: &driver.Vote{Ticket: seq, Fence: seq, RecoveryWindow: recoveryWindow},
		})
		var u *driver.UnavailableError
		if !errors.As(err, &u) || u.Refused { // otherwise the connection was to the former process
			return a, err
		}
	}
}

// wantAbstention checks that the server abstains, and returns its id.
func (v *voter) wantAbstention() string {
	v.t.Helper()
	_, err := v.vote(fmt.Sprint("n", v.seq))
	var of *driver.RecoveringError
	if !errors.As(err, &of) || !errors.Is(err, dibs.ErrUnavailable) {
		v.t.Fatalf("error %v, want a recovering node", err)
	}
	if of.Remaining <= recoveryWindow-generous || of.Remaining > recoveryWindow {
		v.t.Errorf("%v left, want nearly %v", of.Remaining, recoveryWindow)
	}
	return of.Node
}

// endRecoveryWindow makes the server's record older.
func endRecoveryWindow(t *testing.T, server *redistest.Server) {
	t.Helper()
	mark := strings.Fields(server.MustCmd(t, "GET", "dibs:node").(string))
	mark[3] = fmt.Sprint(time.Now().Add(-2 * recoveryWindow).UnixMicro())
	server.MustCmd(t, "SET", "dibs:node", strings.Join(mark, " "))
}

// A server does not vote if it may have lost a lease: when it is new, after a restart,
// with or without its data, and after it was emptied.
func TestRecoveryWindow(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	v := &voter{t: t, store: open(t, server)}
	restart := func() {
		t.Helper()
		server.Kill()
		if err := server.Restart(); err != nil {
			t.Fatal(err)
		}
	}
	id := v.wantAbstention()
	endRecoveryWindow(t, server)
	held, err := v.vote("held")
	if err != nil || !held.Held || held.Vote.Node != id {
		t.Fatalf("%+v, %v, want the vote of %s", held, err, id)
	}
	seq := v.seq
	server.MustCmd(t, "SAVE")
	if a, err := v.vote("saved"); err != nil || !a.Held {
		t.Fatalf("after a snapshot: %+v, %v", a, err)
	}
	for range 5 { // several starts in a second, which LASTSAVE does not show
		restart()
		if again := v.wantAbstention(); again != id {
			t.Fatalf("the id is %s, and was %s, though the data are loaded", again, id)
		}
		if a, err := v.voteAgain("held", seq); err != nil || !a.Held || a.Fence <= held.Fence {
			t.Fatalf("a holder that it still knows gets %+v, %v", a, err)
		}
		endRecoveryWindow(t, server)
		if a, err := v.vote("after"); err != nil || a.Held && a.Vote.Node != id {
			t.Fatalf("%+v, %v", a, err)
		}
	}
	server.MustCmd(t, "FLUSHALL")
	if again := v.wantAbstention(); again == id {
		t.Error("the id is the same, though all data are lost")
	}
	// The server's clock went back, so its uptime is not known.
	mark := strings.Fields(server.MustCmd(t, "GET", "dibs:node").(string))
	mark[2] = fmt.Sprint(server.MustCmd(t, "LASTSAVE"))
	mark[3] = fmt.Sprint(time.Now().Add(time.Hour).UnixMicro())
	server.MustCmd(t, "SET", "dibs:node", strings.Join(mark, " "))
	v.wantAbstention()
}

// A restarted server does not hand off.
func TestNoHandoffInRecoveryWindow(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	v := &voter{t: t, store: open(t, server)}
	v.wantAbstention()
	endRecoveryWindow(t, server)
	for position := range 2 {
		if a, err := v.voteAgain("n", uint64(100+position)); err != nil || a.Held != (position == 0) {
			t.Fatalf("%+v, %v", a, err)
		}
	}
	server.Kill()
	if err := server.Restart(); err != nil {
		t.Fatal(err)
	}
	give := func(seq int) (bool, error) {
		return v.store.Release(t.Context(), driver.ReleaseRequest{
			Name: "n", Token: fmt.Sprint("token:", seq), Until: time.Now().Add(generous),
			Vote: &driver.Vote{Fence: 1000, RecoveryWindow: recoveryWindow},
		})
	}
	v.wantAbstention()
	freed, err := give(100)
	if !freed || err != nil {
		t.Fatalf("released: %v, %v", freed, err)
	}
	if state, err := v.store.Inspect(t.Context(), "n"); err != nil || len(state.Holders) != 0 {
		t.Errorf("%+v, %v, want no holder", state, err)
	}
}

// A cluster's masters fail over one by one.
func TestClusterIsNotAQuorumNode(t *testing.T) {
	cluster := redisstore.New(redistest.Dial("127.0.0.1:1"), redisstore.HiddenCluster())
	if _, err := quorum.New([]driver.Voter{cluster}); !errors.Is(err, dibs.ErrInvalid) || !strings.Contains(err.Error(), "node 0 of a quorum") {
		t.Errorf("error %v, want ErrInvalid for node 0", err)
	}
}
