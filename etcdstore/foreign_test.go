package etcdstore_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/etcdstore"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

// A mixed is a prefix in etcd that dibs shares with etcd's own library.
type mixed struct {
	prefix string
	cli    *clientv3.Client
	store  *etcdstore.Store
	locks  *dibs.Client
}

func newMixed(t *testing.T) mixed {
	t.Helper()
	return openMixed(t, newPrefix())
}

func openMixed(t *testing.T, prefix string) mixed {
	t.Helper()
	m := mixed{prefix: prefix, cli: newClient(t, sharedServer(t))}
	m.store = etcdstore.New(m.cli, etcdstore.Prefix(m.prefix))
	m.locks = m.newLocks(t)
	return m
}

// newLocks returns another client of dibs.
func (m mixed) newLocks(t *testing.T) *dibs.Client {
	t.Helper()
	locks := dibs.New(etcdstore.New(m.cli, etcdstore.Prefix(m.prefix)), dibs.Timeout(generous))
	t.Cleanup(func() {
		if err := locks.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return locks
}

const (
	foreignTTL = time.Minute
	generous   = 30 * time.Second // for a busy machine
)

func (m mixed) session(t *testing.T) *concurrency.Session {
	t.Helper()
	s, err := concurrency.NewSession(m.cli, concurrency.WithTTL(int(foreignTTL/time.Second)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// mutex returns a foreign lock. name is its name after the prefix.
func (m mixed) mutex(t *testing.T, name string) *concurrency.Mutex {
	t.Helper()
	return concurrency.NewMutex(m.session(t), m.prefix+name)
}

// patient returns a context for a call to the store on a busy machine.
func patient(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), generous)
	t.Cleanup(cancel)
	return ctx
}

func (m mixed) put(t *testing.T, key, value string) {
	t.Helper()
	if _, err := m.cli.Put(t.Context(), m.prefix+key, value); err != nil {
		t.Fatal(err)
	}
}

func (m mixed) delete(t *testing.T, key string) {
	t.Helper()
	if _, err := m.cli.Delete(t.Context(), m.prefix+key); err != nil {
		t.Fatal(err)
	}
}

func (m mixed) inspect(t *testing.T, name string) driver.State {
	t.Helper()
	state, err := m.store.Inspect(patient(t), name)
	if err != nil {
		t.Fatal(err)
	}
	return state
}

// wantWaiting waits until n requests wait for a name.
func (m mixed) wantWaiting(t *testing.T, name string, n int) {
	t.Helper()
	eventually(t, generous, func() error { return wantWaiters(t.Context(), m.locks, name, n) })
}

// wantEmpty waits until the prefix has no entries.
func (m mixed) wantEmpty(t *testing.T) {
	t.Helper()
	eventually(t, generous, func() error {
		reply, err := m.cli.Get(t.Context(), m.prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly())
		if err == nil && slices.ContainsFunc(reply.Kvs, func(kv *mvccpb.KeyValue) bool { return !strings.HasPrefix(string(kv.Key), m.prefix+"/") }) {
			err = fmt.Errorf("entries are left: %v", reply.Kvs)
		}
		return err
	})
}

// An outcome is that of a call that waits.
type outcome struct {
	lease *dibs.Lease
	err   error
}

// start starts a call that waits.
func start(acquire func() (*dibs.Lease, error)) <-chan outcome {
	done := make(chan outcome, 1)
	go func() {
		lease, err := acquire()
		done <- outcome{lease, err}
	}()
	return done
}

func mustHold(t *testing.T, lease *dibs.Lease, err error) *dibs.Lease {
	t.Helper()
	must(t, err)
	return lease
}

// A kind has the methods of all kinds of locks.
type kind interface {
	Lock(ctx context.Context, options ...dibs.Option) (*dibs.Lease, error)
	TryLock(ctx context.Context, options ...dibs.Option) (*dibs.Lease, error)
}

// kinds returns all kinds of locks of a name, with further names in a multi-lock.
func kinds(locks *dibs.Client, name string) map[string]kind {
	return map[string]kind{
		"mutex":      locks.Mutex(name),
		"reader":     locks.RWMutex(name).Reader(),
		"writer":     locks.RWMutex(name).Writer(),
		"semaphore":  locks.Semaphore(name, 3).Permits(1),
		"multi-lock": locks.All([]string{"0 free", name, "z free"}),
	}
}

// While a foreign lock is held, each kind of lock should be busy, and wait until it is released.
func TestForeignHolder(t *testing.T) {
	t.Parallel()
	m := newMixed(t)
	for kind, lock := range kinds(m.locks, "a") {
		theirs := m.mutex(t, "a")
		must(t, theirs.Lock(t.Context()))
		_, err := lock.TryLock(t.Context())
		busy, ok := errors.AsType[*dibs.BusyError](err)
		if !ok || m.prefix+"a/"+string(busy.Holder) != theirs.Key() {
			t.Fatalf("%s: %v, want that %s is busy", kind, err, theirs.Key())
		}
		if busy.Remaining <= 0 || busy.Remaining > foreignTTL+time.Second || busy.NeverExpires {
			t.Errorf("%s: %v remain of %v", kind, busy.Remaining, foreignTTL)
		}
		waiting := start(func() (*dibs.Lease, error) { return lock.Lock(t.Context()) })
		m.wantWaiting(t, "a", 1)
		must(t, theirs.Unlock(t.Context()))
		o := <-waiting
		if err := mustHold(t, o.lease, o.err).Unlock(); err != nil {
			t.Error(err)
		}
	}
	m.wantEmpty(t)
}

// While dibs holds any kind of kind, a foreign lock should be busy, and wait until it is released.
// The holder should be notified of the foreign waiter.
func TestForeignWaiter(t *testing.T) {
	t.Parallel()
	m := newMixed(t)
	for kind, lock := range kinds(m.locks, "a") {
		lease, err := lock.TryLock(t.Context())
		mustHold(t, lease, err)
		theirs := m.mutex(t, "a")
		if err := theirs.TryLock(t.Context()); !errors.Is(err, concurrency.ErrLocked) {
			t.Fatalf("%s: theirs: %v, want ErrLocked", kind, err)
		}
		wanted := lease.Wanted()
		acquired := make(chan error, 1)
		go func() { acquired <- theirs.Lock(t.Context()) }()
		m.wantWaiting(t, "a", 1)
		select {
		case <-wanted:
		case <-time.After(generous):
			t.Fatalf("%s: the holder was not notified of the waiter", kind)
		}
		if _, err := m.locks.RWMutex("a").Reader().TryLock(t.Context()); !errors.Is(err, dibs.ErrBusy) {
			t.Errorf("%s: a reader overtook the foreign waiter: %v", kind, err)
		}
		select {
		case err := <-acquired:
			t.Fatalf("%s: theirs: acquired while dibs holds: %v", kind, err)
		default:
		}
		must(t, lease.Unlock())
		must(t, <-acquired)
		if s := m.inspect(t, "a"); s.Holding != 1 || s.Foreign == nil {
			t.Errorf("%s: %+v, want a foreign holder", kind, s)
		}
		must(t, theirs.Unlock(t.Context()))
	}
	m.wantEmpty(t)
}

// A reservation should exclude a foreign lock until it ends.
func TestForeignWaiterBehindReservation(t *testing.T) {
	t.Parallel()
	const hold = 3 * time.Second
	m := newMixed(t)
	begin := time.Now()
	lease, err := m.locks.Mutex("a").TryLock(t.Context(), dibs.MinHold(hold))
	must(t, mustHold(t, lease, err).Unlock())
	theirs := m.mutex(t, "a")
	must(t, theirs.Lock(t.Context()))
	if took := time.Since(begin); took < hold {
		t.Errorf("theirs: acquired %v after the reservation of %v", took, hold)
	}
	must(t, theirs.Unlock(t.Context()))
}

// An upgrade and a downgrade should not let a foreign waiter in.
func TestForeignWaiterBehindResize(t *testing.T) {
	t.Parallel()
	m := newMixed(t)
	lease, err := m.locks.RWMutex("a").Reader().TryLock(t.Context())
	mustHold(t, lease, err)
	theirs := m.mutex(t, "a")
	acquired := make(chan error, 1)
	go func() { acquired <- theirs.Lock(t.Context()) }()
	m.wantWaiting(t, "a", 1)
	must(t, lease.TryUpgrade(t.Context()))
	must(t, lease.Downgrade(t.Context()))
	must(t, lease.TryUpgrade(t.Context()))
	if s := m.inspect(t, "a"); s.Holding != 1 || s.Waiting != 1 || s.Foreign != nil {
		t.Errorf("%+v, want a foreign waiter behind a lock of dibs", s)
	}
	must(t, lease.Unlock())
	must(t, <-acquired)
	must(t, theirs.Unlock(t.Context()))
}

// When a foreign session ends, its lock and its waiters should end.
func TestForeignSessionEnds(t *testing.T) {
	t.Parallel()
	m := newMixed(t)
	holds, waits := m.session(t), m.session(t)
	must(t, concurrency.NewMutex(holds, m.prefix+"a").Lock(t.Context()))
	lost := make(chan error, 1)
	go func() { lost <- concurrency.NewMutex(waits, m.prefix+"a").Lock(t.Context()) }()
	m.wantWaiting(t, "a", 1)
	waiting := start(func() (*dibs.Lease, error) { return m.locks.Mutex("a").Lock(t.Context()) })
	m.wantWaiting(t, "a", 2)
	must(t, waits.Close())
	m.wantWaiting(t, "a", 1)
	select {
	case o := <-waiting:
		t.Fatalf("acquired while theirs is held: %v, %v", o.lease, o.err)
	default:
	}
	must(t, holds.Close())
	o := <-waiting
	lease := mustHold(t, o.lease, o.err)
	if err := <-lost; !errors.Is(err, concurrency.ErrSessionExpired) {
		t.Errorf("theirs: %v, want ErrSessionExpired", err)
	}
	must(t, lease.Unlock())
	m.wantEmpty(t)
}

// The lock service of etcd, which clients in other languages use, should make the same locks.
func TestLockService(t *testing.T) {
	t.Parallel()
	m := newMixed(t)
	lease, err := m.cli.Grant(t.Context(), 60)
	must(t, err)
	var locked struct{ Key []byte }
	server := sharedServer(t)
	must(t, server.Call(t.Context(), "/v3/lock/lock", map[string]any{"name": []byte(m.prefix + "a"), "lease": fmt.Sprint(int64(lease.ID))}, &locked))
	s := m.inspect(t, "a")
	if s.Foreign == nil || s.Foreign.Kind != "etcd lock" || s.Foreign.Key != string(locked.Key) {
		t.Errorf("%+v, want the lock %s", s.Foreign, locked.Key)
	}
	waiting := start(func() (*dibs.Lease, error) { return m.locks.Mutex("a").Lock(t.Context()) })
	m.wantWaiting(t, "a", 1)
	must(t, server.Call(t.Context(), "/v3/lock/unlock", map[string]any{"key": locked.Key}, &struct{}{}))
	o := <-waiting
	must(t, mustHold(t, o.lease, o.err).Unlock())
}

// Requests should be served in their order, whoever sends them.
func TestForeignOrder(t *testing.T) {
	t.Parallel()
	m := newMixed(t)
	const requests = 6
	holder, err := m.locks.Mutex("a").TryLock(t.Context())
	mustHold(t, holder, err)
	served := make(chan int, requests)
	failed := make(chan error, requests)
	for i := range requests {
		theirs := m.mutex(t, "a")
		go func() {
			if i%2 == 0 {
				err := theirs.Lock(t.Context())
				served <- i
				failed <- errors.Join(err, theirs.Unlock(t.Context()))
				return
			}
			lease, err := m.locks.Mutex("a").Lock(t.Context())
			served <- i
			if err == nil {
				err = lease.Unlock()
			}
			failed <- err
		}()
		m.wantWaiting(t, "a", i+1)
	}
	must(t, holder.Unlock())
	for i := range requests {
		if have := <-served; have != i {
			t.Errorf("request %d was served as number %d", have, i)
		}
	}
	for range requests {
		must(t, <-failed)
	}
}

// Inspect should describe a foreign kind, and Revoke should leave it alone.
func TestInspectForeign(t *testing.T) {
	t.Parallel()
	m := newMixed(t)
	theirs := m.mutex(t, "a")
	must(t, theirs.Lock(t.Context()))
	s := m.inspect(t, "a")
	f := s.Foreign
	if f == nil || s.Holding != 1 || s.Holders[0].Token != strings.TrimPrefix(theirs.Key(), m.prefix+"a/") {
		t.Fatalf("%+v, want the foreign lock %s", s, theirs.Key())
	}
	if f.Key != theirs.Key() || f.Kind != "etcd lock" || !f.Lock || !f.Removable() || f.NeverExpires() || f.Advice == "" {
		t.Errorf("%+v, want a lock", f)
	}
	if f.Remaining <= foreignTTL/3 || f.Remaining > foreignTTL || f.Remaining != s.Holders[0].Remaining {
		t.Errorf("%v and %v remain of %v", f.Remaining, s.Holders[0].Remaining, foreignTTL)
	}
	token := s.Holders[0].Token
	for _, r := range []driver.RevokeRequest{{Name: "a", Token: token}, {Name: "a", Fence: s.Fence}} {
		if did, err := m.store.Revoke(patient(t), r); did || err != nil {
			t.Errorf("%+v: %v, %v: want that a foreign lock stays", r, did, err)
		}
	}
	if did, err := m.store.Release(patient(t), driver.ReleaseRequest{Name: "a", Token: token}); did || err != nil {
		t.Errorf("release: %v, %v: want that a foreign lock stays", did, err)
	}
	if errs := m.store.Extend(patient(t), []driver.ExtendRequest{{Name: "a", Token: token, TTL: time.Minute}}); !errors.Is(errs[0], driver.ErrLost) {
		t.Errorf("extend: %v, want ErrLost", errs[0])
	}
	if names, err := m.store.List(patient(t), "*"); err != nil || !slices.Equal(names, []string{"a"}) {
		t.Errorf("list: %q, %v", names, err)
	}
	lease, err := m.locks.Mutex("b").TryLock(t.Context())
	mustHold(t, lease, err)
	waiter := m.mutex(t, "b")
	go func() { _ = waiter.Lock(t.Context()) }()
	m.wantWaiting(t, "b", 1)
	s = m.inspect(t, "b")
	if s.Foreign != nil || len(s.Waiters) != 1 || s.Waiters[0].Token == "" || !s.Waiters[0].Exclusive() {
		t.Errorf("%+v, want a foreign waiter behind a lock of dibs", s)
	}
}

// Both elections should exclude each other, and Leader should return a foreign candidate's value.
func TestForeignElection(t *testing.T) {
	t.Parallel()
	m := newMixed(t)
	theirs := concurrency.NewElection(m.session(t), m.prefix+"leader")
	must(t, theirs.Campaign(t.Context(), "http://theirs:8080"))
	election := m.locks.Election("leader", dibs.Label("http://ours:8080"))
	leader, err := election.Leader(t.Context())
	if err != nil || leader.Label != "http://theirs:8080" {
		t.Errorf("%+v, %v: want their value as the label", leader, err)
	}
	if f := m.inspect(t, "leader").Foreign; f == nil || f.Kind != "etcd election" || !f.Removable() {
		t.Errorf("%+v, want an election", f)
	}
	waiting := start(func() (*dibs.Lease, error) { return election.Campaign(t.Context()) })
	m.wantWaiting(t, "leader", 1)
	must(t, theirs.Proclaim(t.Context(), "http://theirs:8081"))
	must(t, theirs.Resign(t.Context()))
	o := <-waiting
	lease := mustHold(t, o.lease, o.err)
	seen, err := theirs.Leader(t.Context())
	if err != nil || !strings.Contains(string(seen.Kvs[0].Value), "http://ours:8080") {
		t.Errorf("theirs: %+v, %v: want our label", seen, err)
	}
	elected := make(chan error, 1)
	go func() { elected <- theirs.Campaign(t.Context(), "http://theirs:8082") }()
	m.wantWaiting(t, "leader", 1)
	must(t, lease.Unlock())
	must(t, <-elected)
	if leader, err := election.Leader(t.Context()); err != nil || leader.Label != "http://theirs:8082" {
		t.Errorf("%+v, %v: want their value as the label", leader, err)
	}
	must(t, theirs.Resign(t.Context()))
	m.wantEmpty(t)
}

// A key that dibs did not write should exclude, whatever it contains, as it excludes etcd's tools.
func TestOddValues(t *testing.T) {
	t.Parallel()
	for what, value := range map[string]string{
		"empty":          "",
		"text":           "enabled",
		"number":         "42",
		"JSON":           `{"name":"a"}`,
		"wrong types":    `{"dibs":1,"weight":"x"}`,
		"no weight":      `{"dibs":"token","limit":5}`,
		"large weight":   `{"dibs":"token","weight":6,"limit":5}`,
		"no token":       `{"weight":1,"limit":5}`,
		"array":          `[1,2]`,
		"null":           `null`,
		"cut":            `{"dibs":"token","weight":1,"limit":5`,
		"binary":         "\x00\xff\xfe\x80",
		"nearly maximum": strings.Repeat("x", 1<<20),
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			m := newMixed(t)
			m.put(t, "a/by-hand", value)
			for kind, lock := range kinds(m.locks, "a") {
				_, err := lock.TryLock(t.Context())
				busy, ok := errors.AsType[*dibs.BusyError](err)
				if !ok || !busy.NeverExpires || busy.Holder != "by-hand" {
					t.Errorf("%s: %v, want a holder that never expires", kind, err)
				}
			}
			s := m.inspect(t, "a")
			f := s.Foreign
			if f == nil || f.Lock || f.Removable() || !f.NeverExpires() || f.Key != m.prefix+"a/by-hand" || !s.Holders[0].NeverExpires() {
				t.Fatalf("%+v, want a value that never expires", f)
			}
			if did, err := m.store.RevokeForeign(patient(t), "a", *f); did != "" || !errors.Is(err, driver.ErrInvalid) {
				t.Errorf("%q, %v: want ErrInvalid", did, err)
			}
			waiting := start(func() (*dibs.Lease, error) { return m.locks.Mutex("a").Lock(t.Context()) })
			m.wantWaiting(t, "a", 1)
			m.delete(t, "a/by-hand")
			o := <-waiting
			must(t, mustHold(t, o.lease, o.err).Unlock())
		})
	}
}

// An election's value that is no label should be ignored.
func TestOddElectionValues(t *testing.T) {
	t.Parallel()
	m := newMixed(t)
	for _, value := range []string{"two words", "line\n", "\xff", strings.Repeat("x", 129)} {
		theirs := concurrency.NewElection(m.session(t), m.prefix+"leader")
		must(t, theirs.Campaign(t.Context(), value))
		s := m.inspect(t, "leader")
		if s.Foreign == nil || s.Foreign.Kind != "etcd election" || s.Holders[0].Label != "" || s.Holders[0].Owner != "" {
			t.Errorf("%q: %+v", value, s)
		}
		must(t, theirs.Resign(t.Context()))
	}
}

// A lock of etcd's tools whose name has a slash is another kind, although its keys are below the
// queue. It should neither block nor be listed.
func TestForeignFolder(t *testing.T) {
	t.Parallel()
	m := newMixed(t)
	theirs := m.mutex(t, "a/b")
	must(t, theirs.Lock(t.Context()))
	for kind, lock := range kinds(m.locks, "a") {
		lease, err := lock.TryLock(t.Context())
		if err != nil {
			t.Errorf("%s: %v, want that the lock a is free", kind, err)
			continue
		}
		must(t, lease.Unlock())
		lease, err = lock.Lock(t.Context())
		must(t, mustHold(t, lease, err).Unlock())
	}
	if s := m.inspect(t, "a"); s.Holding != 0 || s.Foreign != nil {
		t.Errorf("%+v, want a free name", s)
	}
	if names, err := m.store.List(patient(t), "*"); err != nil || len(names) > 0 {
		t.Errorf("list: %q, %v", names, err)
	}
}

// Many keys below the queue should not hide the holder from a waiter when another waiter leaves.
func TestForeignFolderHidesNobody(t *testing.T) {
	t.Parallel()
	m := newMixed(t)
	holder, err := m.locks.Mutex("a").TryLock(t.Context())
	mustHold(t, holder, err)
	ctx, cancel := context.WithCancel(t.Context())
	leaves := start(func() (*dibs.Lease, error) { return m.newLocks(t).Mutex("a").Lock(ctx) })
	m.wantWaiting(t, "a", 1)
	for i := range 7 {
		m.put(t, fmt.Sprintf("a/b/%d", i), "")
	}
	waiting := start(func() (*dibs.Lease, error) { return m.newLocks(t).Mutex("a").Lock(t.Context()) })
	m.wantWaiting(t, "a", 2)
	cancel()
	if o := <-leaves; !errors.Is(o.err, context.Canceled) {
		t.Fatal(o.err)
	}
	select {
	case o := <-waiting:
		t.Fatalf("acquired while another holds: %v, %v", o.lease, o.err)
	case <-time.After(time.Second):
	}
	must(t, holder.Unlock())
	o := <-waiting
	must(t, mustHold(t, o.lease, o.err).Unlock())
}

// A slash in a name ends a foreign lock's folder, so the prefix should contain it. A percent sign
// must also be escaped.
func TestForeignNames(t *testing.T) {
	t.Parallel()
	m := newMixed(t)
	folder := openMixed(t, m.prefix+"jobs/nightly/")
	for _, c := range []struct {
		theirs string // after the prefix
		with   mixed
		ours   string
	}{
		{"plain", m, "plain"},
		{"jobs/nightly/backup", folder, "backup"},
		{"jobs%2Fbackup", m, "jobs/backup"},
		{"50%25", m, "50%"},
		{"with space", m, "with space"},
		{"ünï", m, "ünï"},
	} {
		theirs := m.mutex(t, c.theirs)
		must(t, theirs.Lock(t.Context()))
		if _, err := c.with.locks.Mutex(c.ours).TryLock(t.Context()); !errors.Is(err, dibs.ErrBusy) {
			t.Errorf("%s: %v, want ErrBusy", c.theirs, err)
		}
		if names, err := c.with.store.List(patient(t), "*"); err != nil || !slices.Equal(names, []string{c.ours}) {
			t.Errorf("%s: listed as %q, %v", c.theirs, names, err)
		}
		must(t, theirs.Unlock(t.Context()))
	}
	other := m.mutex(t, "50%")
	must(t, other.Lock(t.Context()))
	lease, err := m.locks.Mutex("50%").TryLock(t.Context())
	must(t, mustHold(t, lease, err).Unlock())
	if names, err := m.store.List(patient(t), "*"); err != nil || len(names) > 0 {
		t.Errorf("listed %q, %v: no name of dibs has this key", names, err)
	}
	above := concurrency.NewMutex(m.session(t), strings.TrimSuffix(folder.prefix, "/"))
	if err := above.TryLock(t.Context()); !errors.Is(err, concurrency.ErrLocked) {
		t.Errorf("theirs: a folder of a prefix: %v, want ErrLocked, as the documentation says", err)
	}
}

// RevokeForeign should end the lock that was seen, and no other.
func TestRevokeForeign(t *testing.T) {
	t.Parallel()
	m := newMixed(t)
	theirs := m.mutex(t, "a")
	must(t, theirs.Lock(t.Context()))
	seen := *m.inspect(t, "a").Foreign
	if did, err := m.store.RevokeForeign(patient(t), "b", seen); did != "" || !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("another name: %q, %v: want ErrInvalid", did, err)
	}
	waiting := start(func() (*dibs.Lease, error) { return m.locks.Mutex("a").Lock(t.Context()) })
	m.wantWaiting(t, "a", 1)
	if did, err := m.store.RevokeForeign(patient(t), "a", seen); err != nil || did != "deleted the key "+theirs.Key() {
		t.Errorf("%q, %v", did, err)
	}
	o := <-waiting
	lease := mustHold(t, o.lease, o.err)
	if did, err := m.store.RevokeForeign(patient(t), "a", seen); did != "" || err != nil {
		t.Errorf("again: %q, %v: want nothing", did, err)
	}
	must(t, theirs.Unlock(t.Context())) // late: it concerns only its own key
	if err := lease.Extend(t.Context(), time.Minute); err != nil {
		t.Errorf("after their late release: %v", err)
	}
	must(t, lease.Unlock())
	must(t, theirs.Lock(t.Context())) // the same key, another lock
	if did, err := m.store.RevokeForeign(patient(t), "a", seen); did != "" || err != nil {
		t.Errorf("a later lock: %q, %v: want nothing", did, err)
	}
	if s := m.inspect(t, "a"); s.Foreign == nil || s.Foreign.Key != theirs.Key() {
		t.Errorf("%+v, want the later lock", s)
	}
	must(t, theirs.Unlock(t.Context()))
	m.wantEmpty(t)
}
