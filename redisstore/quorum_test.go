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
	"github.com/dibslock/dibs/internal/redistest"
	"github.com/dibslock/dibs/quorum"
	"github.com/dibslock/dibs/redisstore"
	"github.com/dibslock/dibs/storetest"
)

func TestVotes(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	var stores atomic.Int32
	t.Run("law", func(t *testing.T) {
		storetest.RunVotes(t, func(t *testing.T) driver.Store {
			return open(t, server, redisstore.Prefix(fmt.Sprintf("%d:", stores.Add(1))))
		})
	})
	wantKeysThatEnd(t, server)
}

func TestQuorum(t *testing.T) {
	t.Parallel()
	servers := []*redistest.Server{redistest.Start(t), redistest.Start(t), redistest.Start(t)}
	var stores atomic.Int32
	t.Run("law", func(t *testing.T) {
		storetest.Run(t, func(t *testing.T) driver.Store {
			prefix := fmt.Sprintf("%d:", stores.Add(1))
			var nodes []driver.Store
			for _, server := range servers {
				nodes = append(nodes, open(t, server, redisstore.Prefix(prefix)))
			}
			q, err := quorum.Config{Longest: longest, Trusting: true}.New(nodes...)
			if err != nil {
				t.Fatal(err)
			}
			return q
		})
	})
	for _, server := range servers {
		wantKeysThatEnd(t, server)
	}
}

// A server that has granted no fence yet begins with 1, if the ballot asks for none.
func TestFirstFence(t *testing.T) {
	t.Parallel()
	for _, handOn := range []bool{false, true} {
		t.Run(fmt.Sprint(handOn), func(t *testing.T) {
			server := redistest.Start(t)
			store := open(t, server)
			claim := driver.AcquireRequest{Name: "n", Token: "a", Client: "client", Seq: 1, TTL: time.Hour, Weight: 1, Limit: 1, Vote: &driver.VoteRequest{Ticket: 1}}
			for want := uint64(1); want <= 2; want++ {
				if handOn { // the highwater is found by another script
					server.MustCmd(t, "DEL", "lock:n")
				}
				if a, err := store.Acquire(t.Context(), claim); err != nil || !a.Held || a.Fence != want {
					t.Fatalf("%+v, %v, want fence %d", a, err, want)
				}
			}
		})
	}
}

// voter asks one server for its vote.
type voter struct {
	t     *testing.T
	store *redisstore.Store
	seq   uint64
}

const recoveryArgument = time.Minute

// ask asks for a name, with a token of its own.
func (v *voter) ask(name string) (driver.AcquireReply, error) {
	v.t.Helper()
	v.seq++
	return v.again(name, v.seq)
}

func (v *voter) again(name string, seq uint64) (driver.AcquireReply, error) {
	v.t.Helper()
	for {
		a, err := v.store.Acquire(v.t.Context(), driver.AcquireRequest{
			Name: name, Token: fmt.Sprint("token:", seq), Client: "client", Seq: seq, TTL: time.Hour,
			Weight: 1, Limit: 1, Queue: true, Until: time.Now().Add(generous),
			Vote: &driver.VoteRequest{Ticket: seq, Fence: seq, RecoveryWindow: recoveryArgument},
		})
		var u *dibs.UnavailableError
		if !errors.As(err, &u) || u.Refused { // else the connection was to the process before
			return a, err
		}
	}
}

// young checks that the server does not vote, and returns its id.
func (v *voter) young() string {
	v.t.Helper()
	_, err := v.ask(fmt.Sprint("n", v.seq))
	var of *driver.RecoveringError
	if !errors.As(err, &of) || !errors.Is(err, dibs.ErrUnavailable) {
		v.t.Fatalf("error %v, want that it may have forgotten something", err)
	}
	if of.Remaining <= recoveryArgument-generous || of.Remaining > recoveryArgument {
		v.t.Errorf("%v left, want nearly %v", of.Remaining, recoveryArgument)
	}
	return of.Node
}

// grow has the server believe that it remembers for longer.
func grow(t *testing.T, server *redistest.Server) {
	t.Helper()
	mark := strings.Fields(server.MustCmd(t, "GET", "dibs:node").(string))
	mark[3] = fmt.Sprint(time.Now().Add(-2 * recoveryArgument).UnixMicro())
	server.MustCmd(t, "SET", "dibs:node", strings.Join(mark, " "))
}

// A server does not vote for those who may have held what it has forgotten: when it is
// new, when it was started again, whether or not it has its data, and when it was emptied.
func TestBirthMark(t *testing.T) {
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
	id := v.young()
	grow(t, server)
	held, err := v.ask("held")
	if err != nil || !held.Held || held.Node != id {
		t.Fatalf("%+v, %v, want the vote of %s", held, err, id)
	}
	seq := v.seq
	server.MustCmd(t, "SAVE")
	if a, err := v.ask("saved"); err != nil || !a.Held {
		t.Fatalf("after it has saved: %+v, %v", a, err)
	}
	for range 5 { // several times a second, which LASTSAVE does not tell
		restart()
		if again := v.young(); again != id {
			t.Fatalf("it is store %s, and was %s: it has its data", again, id)
		}
		if a, err := v.again("held", seq); err != nil || !a.Held || a.Fence <= held.Fence {
			t.Fatalf("whom it still knows is answered %+v, %v", a, err)
		}
		grow(t, server)
		if a, err := v.ask("after"); err != nil || a.Held && a.Node != id {
			t.Fatalf("%+v, %v", a, err)
		}
	}
	server.MustCmd(t, "FLUSHALL")
	if again := v.young(); again == id {
		t.Error("it is the same store, and has forgotten everything")
	}
	// Its clock went back: nobody knows for how long it remembers.
	mark := strings.Fields(server.MustCmd(t, "GET", "dibs:node").(string))
	mark[2] = fmt.Sprint(server.MustCmd(t, "LASTSAVE"))
	mark[3] = fmt.Sprint(time.Now().Add(time.Hour).UnixMicro())
	server.MustCmd(t, "SET", "dibs:node", strings.Join(mark, " "))
	v.young()
}

// A server that was started again hands on to nobody.
func TestYoungHandsOnToNobody(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	v := &voter{t: t, store: open(t, server)}
	v.young()
	grow(t, server)
	for position := range 2 {
		if a, err := v.again("n", uint64(100+position)); err != nil || a.Held != (position == 0) {
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
			Vote: &driver.VoteRequest{Fence: 1000, RecoveryWindow: recoveryArgument},
		})
	}
	v.young()
	freed, err := give(100)
	if !freed || err != nil {
		t.Fatalf("released: %v, %v", freed, err)
	}
	if state, err := v.store.Inspect(t.Context(), "n"); err != nil || len(state.Holders) != 0 {
		t.Errorf("%+v, %v, want that nobody holds", state, err)
	}
}

// A cluster's masters fail over, each for itself.
func TestClusterIsNoNode(t *testing.T) {
	t.Parallel()
	v := &voter{t: t, store: open(t, redistest.StartClusterNode(t), redisstore.Sharded())}
	if _, err := v.ask("n"); !errors.Is(err, dibs.ErrInvalid) {
		t.Errorf("error %v, want that it is invalid", err)
	}
}
