package zkstore_test

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/zkstore"
	"github.com/go-zookeeper/zk"
)

// A mixed is a prefix in ZooKeeper that dibs shares with other libraries: with the Lock of Go's
// library, and with znodes of Curator's classes.
type mixed struct {
	prefix string
	conn   *zk.Conn
	store  *zkstore.Store
	locks  *dibs.Client
}

func newMixed(t *testing.T, options ...zkstore.Option) mixed {
	t.Helper()
	server := sharedServer(t)
	m := mixed{prefix: newPrefix(), conn: connect(t, server)}
	m.store = open(t, endpoints(server), append([]zkstore.Option{zkstore.Prefix(m.prefix)}, options...)...)
	m.locks = dibs.New(m.store, dibs.Timeout(generous))
	t.Cleanup(func() {
		if err := m.locks.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return m
}

// mutex returns a foreign lock.
func (m mixed) mutex(name string) *zk.Lock {
	return zk.NewLock(m.conn, path.Join(m.prefix, name), everybody)
}

// add creates a sequential, ephemeral znode as other libraries do, and returns its name.
func (m mixed) add(t *testing.T, name, entry string) string {
	t.Helper()
	create := func() (string, error) {
		return m.conn.Create(path.Join(m.prefix, name)+"/"+entry, nil, zk.FlagEphemeral|zk.FlagSequence, everybody)
	}
	created, err := create()
	if errors.Is(err, zk.ErrNoNode) {
		must(t, m.makeName(name))
		created, err = create()
	}
	must(t, err)
	return path.Base(created)
}

// makeName creates the znode of a name, and those above it.
func (m mixed) makeName(name string) error {
	for _, znode := range []string{m.prefix, path.Join(m.prefix, name)} {
		if _, err := m.conn.Create(znode, nil, 0, everybody); err != nil && !errors.Is(err, zk.ErrNodeExists) {
			return err
		}
	}
	return nil
}

func (m mixed) delete(t *testing.T, name, entry string) {
	t.Helper()
	must(t, m.conn.Delete(path.Join(m.prefix, name, entry), -1))
}

func (m mixed) inspect(t *testing.T, name string) driver.State {
	t.Helper()
	state, err := m.store.Inspect(soon(t), name)
	must(t, err)
	return state
}

// wantWaiting waits until n requests wait for a name.
func (m mixed) wantWaiting(t *testing.T, name string, n int) {
	t.Helper()
	eventually(t, generous, func() error { return wantWaiters(t.Context(), m.locks, name, n) })
}

func (m mixed) wantEmpty(t *testing.T) {
	t.Helper()
	wantNothing(t, m.conn, m.prefix, generous)
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
		theirs := m.mutex("a")
		must(t, theirs.Lock())
		entry := path.Base(onlyChild(t, m.conn, path.Join(m.prefix, "a")))
		_, err := lock.TryLock(t.Context())
		busy, ok := errors.AsType[*dibs.BusyError](err)
		if !ok || string(busy.Holder) != entry {
			t.Fatalf("%s: %v, want that %s is busy", kind, err, entry)
		}
		waiting := start(func() (*dibs.Lease, error) { return lock.Lock(t.Context()) })
		m.wantWaiting(t, "a", 1)
		must(t, theirs.Unlock())
		o := <-waiting
		if err := mustHold(t, o.lease, o.err).Unlock(); err != nil {
			t.Error(err)
		}
	}
	m.wantEmpty(t)
}

// While dibs holds any kind of lock, a foreign lock should wait until it is released. The holder
// should be notified of the foreign waiter.
func TestForeignWaiter(t *testing.T) {
	t.Parallel()
	m := newMixed(t)
	for kind, lock := range kinds(m.locks, "a") {
		lease, err := lock.TryLock(t.Context())
		mustHold(t, lease, err)
		theirs := m.mutex("a")
		wanted := lease.Wanted()
		acquired := make(chan error, 1)
		go func() { acquired <- theirs.Lock() }()
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
		must(t, theirs.Unlock())
	}
	m.wantEmpty(t)
}

// A reservation should exclude a foreign lock until it ends. Only dibs can end it.
func TestForeignWaiterBehindReservation(t *testing.T) {
	t.Parallel()
	const hold = 3 * time.Second
	m := newMixed(t)
	begin := time.Now()
	lease, err := m.locks.Mutex("a").TryLock(t.Context(), dibs.MinHold(hold))
	must(t, mustHold(t, lease, err).Unlock())
	theirs := m.mutex("a")
	acquired := make(chan error, 1)
	go func() { acquired <- theirs.Lock() }()
	m.wantWaiting(t, "a", 1)
	waiting := start(func() (*dibs.Lease, error) { return m.locks.Mutex("a").Lock(t.Context()) })
	must(t, <-acquired)
	if took := time.Since(begin); took < hold {
		t.Errorf("theirs: acquired %v after the reservation of %v", took, hold)
	}
	must(t, theirs.Unlock())
	o := <-waiting
	must(t, mustHold(t, o.lease, o.err).Unlock())
}

// An upgrade and a downgrade should not let a foreign waiter in.
func TestForeignWaiterBehindResize(t *testing.T) {
	t.Parallel()
	m := newMixed(t)
	lease, err := m.locks.RWMutex("a").Reader().TryLock(t.Context())
	mustHold(t, lease, err)
	theirs := m.mutex("a")
	acquired := make(chan error, 1)
	go func() { acquired <- theirs.Lock() }()
	m.wantWaiting(t, "a", 1)
	must(t, lease.TryUpgrade(t.Context()))
	must(t, lease.Downgrade(t.Context()))
	must(t, lease.TryUpgrade(t.Context()))
	if s := m.inspect(t, "a"); s.Holding != 1 || s.Waiting != 1 || s.Foreign != nil {
		t.Errorf("%+v, want a foreign waiter behind a lock of dibs", s)
	}
	select {
	case err := <-acquired:
		t.Fatalf("theirs: acquired while dibs holds: %v", err)
	case <-time.After(200 * time.Millisecond):
	}
	must(t, lease.Unlock())
	must(t, <-acquired)
	must(t, theirs.Unlock())
}

// When a foreign session ends, its lock and its waiters should end.
func TestForeignSessionEnds(t *testing.T) {
	t.Parallel()
	m := newMixed(t)
	holds, waits := connect(t, sharedServer(t)), connect(t, sharedServer(t))
	must(t, zk.NewLock(holds, path.Join(m.prefix, "a"), everybody).Lock())
	lost := make(chan error, 1)
	go func() { lost <- zk.NewLock(waits, path.Join(m.prefix, "a"), everybody).Lock() }()
	m.wantWaiting(t, "a", 1)
	waiting := start(func() (*dibs.Lease, error) { return m.locks.Mutex("a").Lock(t.Context()) })
	m.wantWaiting(t, "a", 2)
	waits.Close()
	m.wantWaiting(t, "a", 1)
	select {
	case o := <-waiting:
		t.Fatalf("acquired while theirs is held: %v, %v", o.lease, o.err)
	default:
	}
	holds.Close()
	o := <-waiting
	lease := mustHold(t, o.lease, o.err)
	if err := <-lost; err == nil {
		t.Error("theirs: acquired after its session ended")
	}
	must(t, lease.Unlock())
	m.wantEmpty(t)
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
		theirs := m.mutex("a")
		go func() {
			if i%2 == 0 {
				err := theirs.Lock()
				served <- i
				failed <- errors.Join(err, theirs.Unlock())
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

// Inspect should describe a foreign lock, and Revoke should leave it alone.
func TestInspectForeign(t *testing.T) {
	t.Parallel()
	m := newMixed(t)
	theirs := m.mutex("a")
	must(t, theirs.Lock())
	znode := onlyChild(t, m.conn, path.Join(m.prefix, "a"))
	s := m.inspect(t, "a")
	f := s.Foreign
	if f == nil || s.Holding != 1 || s.Holders[0].Token != path.Base(znode) {
		t.Fatalf("%+v, want the foreign lock %s", s, znode)
	}
	if f.Key != znode || f.Kind == "" || !f.Lock || !f.Removable() || f.Advice == "" {
		t.Errorf("%+v, want a lock", f)
	}
	token := s.Holders[0].Token
	for _, r := range []driver.RevokeRequest{{Name: "a", Token: token}, {Name: "a", Fence: s.Fence}} {
		if did, err := m.store.Revoke(soon(t), r); did || err != nil {
			t.Errorf("%+v: %v, %v: want that a foreign lock stays", r, did, err)
		}
	}
	if did, err := m.store.Release(soon(t), driver.ReleaseRequest{Name: "a", Token: token}); did || err != nil {
		t.Errorf("release: %v, %v: want that a foreign lock stays", did, err)
	}
	if errs := m.store.Extend(soon(t), []driver.ExtendRequest{{Name: "a", Token: token, Client: "c", TTL: time.Minute, Weight: 1, Limit: 1}}); !errors.Is(errs[0], driver.ErrLost) {
		t.Errorf("extend: %v, want ErrLost", errs[0])
	}
	if names, err := m.store.List(soon(t), "*"); err != nil || !slices.Equal(names, []string{"a"}) {
		t.Errorf("list: %q, %v", names, err)
	}
	lease, err := m.locks.Mutex("b").TryLock(t.Context())
	mustHold(t, lease, err)
	waiter := m.mutex("b")
	waited := make(chan error, 1)
	go func() { waited <- waiter.Lock() }()
	m.wantWaiting(t, "b", 1)
	s = m.inspect(t, "b")
	if s.Foreign != nil || len(s.Waiters) != 1 || s.Waiters[0].Token == "" || !s.Waiters[0].Exclusive() {
		t.Errorf("%+v, want a foreign waiter behind a lock of dibs", s)
	}
	must(t, lease.Unlock())
	must(t, <-waited)
}

// Readers of Curator's read-write lock should share a name with readers of dibs, and exclude all
// others.
func TestForeignReaders(t *testing.T) {
	t.Parallel()
	const id = "_c_00112233-4455-6677-8899-aabbccddeeff-"
	for format, c := range map[string]struct {
		options     []zkstore.Option
		read, write string
	}{
		"Curator": {nil, id + "__READ__", id + "__WRIT__"},
		"kazoo":   {[]zkstore.Option{zkstore.Format(zkstore.Kazoo)}, "00112233445566778899aabbccddeeff__rlock__", "00112233445566778899aabbccddeeff__lock__"},
	} {
		t.Run(format, func(t *testing.T) {
			t.Parallel()
			m := newMixed(t, c.options...)
			theirs := m.add(t, "a", c.read)
			ours, err := m.locks.RWMutex("a").Reader().TryLock(t.Context())
			mustHold(t, ours, err)
			for kind, lock := range map[string]kind{"mutex": m.locks.Mutex("a"), "writer": m.locks.RWMutex("a").Writer()} {
				if _, err := lock.TryLock(t.Context()); !errors.Is(err, dibs.ErrBusy) {
					t.Errorf("%s beside a foreign reader: %v, want ErrBusy", kind, err)
				}
			}
			if s := m.inspect(t, "a"); s.Holding != 2 {
				t.Errorf("%+v, want two readers", s)
			}
			writer := m.add(t, "a", c.write)
			if _, err := m.locks.RWMutex("a").Reader().TryLock(t.Context()); !errors.Is(err, dibs.ErrBusy) {
				t.Errorf("a reader overtook a foreign writer: %v", err)
			}
			waiting := start(func() (*dibs.Lease, error) { return m.locks.RWMutex("a").Reader().Lock(t.Context()) })
			m.wantWaiting(t, "a", 2)
			must(t, ours.Unlock())
			m.delete(t, "a", theirs)
			if s := m.inspect(t, "a"); s.Holding != 1 || s.Holders[0].Token != writer {
				t.Errorf("%+v, want the foreign writer", s)
			}
			m.delete(t, "a", writer)
			o := <-waiting
			must(t, mustHold(t, o.lease, o.err).Unlock())
		})
	}
}

// A znode that dibs did not write should exclude, whatever it contains, as it excludes others.
func TestOddData(t *testing.T) {
	t.Parallel()
	m := newMixed(t)
	for i, data := range []string{
		"", "enabled", "42", `{"name":"a"}`, `{"dibs":1,"weight":"x"}`, `{"dibs":"token","limit":5}`, `{"dibs":"token","weight":6,"limit":5}`,
		`{"dibs":"token","weight":1,"limit":5,"ttl":1000}`, `[1,2]`, `null`, `{"dibs":"token","weight":1`, "\x00\xff\xfe\x80", strings.Repeat("x", 500<<10),
	} {
		name := fmt.Sprint("n", i)
		must(t, m.makeName(name))
		entry, err := m.conn.Create(path.Join(m.prefix, name, "by-hand-lock-"), []byte(data), zk.FlagSequence, everybody)
		must(t, err)
		for kind, lock := range kinds(m.locks, name) {
			_, err := lock.TryLock(t.Context())
			busy, ok := errors.AsType[*dibs.BusyError](err)
			if !ok || string(busy.Holder) != path.Base(entry) {
				t.Errorf("%.50q: %s: %v, want it busy", data, kind, err)
			}
		}
		waiting := start(func() (*dibs.Lease, error) { return m.locks.Mutex(name).Lock(t.Context()) })
		m.wantWaiting(t, name, 1)
		must(t, m.conn.Delete(entry, -1))
		o := <-waiting
		must(t, mustHold(t, o.lease, o.err).Unlock())
	}
}

// Names of entries that resemble those of dibs, or that have no sense, should exclude.
func TestOddEntries(t *testing.T) {
	t.Parallel()
	m := newMixed(t)
	const id = "_c_00112233445566778899aabbccddeeff"
	for i, entry := range []string{
		"", "x", "lock-", "-lock-", "_c_-lock-", id + "-lock-", id + "-1.1.0-lock-", id + "-0.1.0-lock-", id + "-2.1.0-lock-", id + "--1.1.0-lock-",
		id + "-99999999999999999999.1.0-lock-", id + "-1.1-lock-", id + "-1.1.0.0-lock-", "00112233445566778899aabbccddeeff__lock__", "00112233445566778899aabbccddeeff__rlock__", "%2F", "é",
	} {
		name := fmt.Sprint("n", i)
		entry = m.add(t, name, entry)
		if _, err := m.locks.Mutex(name).TryLock(t.Context()); !errors.Is(err, dibs.ErrBusy) {
			t.Errorf("%s: %v, want ErrBusy", entry, err)
		}
		if s := m.inspect(t, name); s.Holding != 1 {
			t.Errorf("%s: %+v, want a holder", entry, s)
		}
		waiting := start(func() (*dibs.Lease, error) { return m.locks.Mutex(name).Lock(t.Context()) })
		m.wantWaiting(t, name, 1)
		m.delete(t, name, entry)
		o := <-waiting
		must(t, mustHold(t, o.lease, o.err).Unlock())
	}
}

// A child without a sequence number is no entry in a queue. Curator's semaphore has such children.
func TestWrongType(t *testing.T) {
	t.Parallel()
	m := newMixed(t)
	for i, child := range []string{"leases", "x-007", "lock-", "lock-12345678901", "lock-000000000x", "0", "%"} {
		name := fmt.Sprint("n", i)
		create(t, m.conn, path.Join(m.prefix, name, child), "")
		for kind, lock := range kinds(m.locks, name) {
			_, err := lock.TryLock(t.Context())
			wrong, ok := errors.AsType[*driver.WrongTypeError](err)
			if !ok {
				t.Errorf("%s: %s: %v, want ErrWrongType", child, kind, err)
				continue
			}
			if f := wrong.State.Foreign; f == nil || !strings.HasPrefix(f.Key, path.Join(m.prefix, name)) || f.Advice == "" {
				t.Errorf("%s: %s: %+v, want a description", child, kind, f)
			}
		}
		if _, err := m.store.Inspect(soon(t), name); !errors.Is(err, driver.ErrWrongType) {
			t.Errorf("%s: inspect: %v, want ErrWrongType", child, err)
		}
		if entries, err := children(m.conn, path.Join(m.prefix, name)); err != nil || !slices.Equal(entries, []string{child}) {
			t.Errorf("%s: %q, %v: want that nothing was changed", child, entries, err)
		}
		m.delete(t, name, child)
		lease, err := m.locks.Mutex(name).TryLock(t.Context())
		must(t, mustHold(t, lease, err).Unlock())
	}
	for _, free := range []string{"0 free", "z free"} {
		if s := m.inspect(t, free); s.Holding+s.Waiting > 0 {
			t.Errorf("%s: %+v, want nothing left", free, s)
		}
	}
}

// A child without a sequence number can appear while dibs holds the name.
func TestWrongTypeWhileHeld(t *testing.T) {
	t.Parallel()
	m := newMixed(t)
	r := request("a", "token", shortTTL)
	wantHeld(t, m.store, r)
	create := func() {
		_, err := m.conn.Create(path.Join(m.prefix, "a", "leases"), nil, 0, everybody)
		must(t, err)
	}
	create()
	if _, err := m.store.Acquire(soon(t), try("a", "other", shortTTL)); !errors.Is(err, driver.ErrWrongType) {
		t.Errorf("%v, want ErrWrongType", err)
	}
	if err := extend(t, m.store, r, shortTTL); err != nil && !errors.Is(err, driver.ErrWrongType) {
		t.Errorf("extend: %v", err)
	}
	if did, err := m.store.Release(soon(t), driver.ReleaseRequest{Name: "a", Token: "token"}); err == nil && !did || err != nil && !errors.Is(err, driver.ErrWrongType) {
		t.Errorf("release: %v, %v", did, err)
	}
}

// RevokeForeign should end the lock that was seen, and no other.
func TestRevokeForeign(t *testing.T) {
	t.Parallel()
	m := newMixed(t)
	theirs := m.mutex("a")
	must(t, theirs.Lock())
	znode := onlyChild(t, m.conn, path.Join(m.prefix, "a"))
	seen := *m.inspect(t, "a").Foreign
	if did, err := m.store.RevokeForeign(soon(t), "b", seen); did != "" || !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("another name: %q, %v: want ErrInvalid", did, err)
	}
	waiting := start(func() (*dibs.Lease, error) { return m.locks.Mutex("a").Lock(t.Context()) })
	m.wantWaiting(t, "a", 1)
	if did, err := m.store.RevokeForeign(soon(t), "a", seen); err != nil || !strings.Contains(did, znode) {
		t.Errorf("%q, %v", did, err)
	}
	o := <-waiting
	lease := mustHold(t, o.lease, o.err)
	if did, err := m.store.RevokeForeign(soon(t), "a", seen); did != "" || err != nil {
		t.Errorf("again: %q, %v: want nothing", did, err)
	}
	if err := theirs.Unlock(); !errors.Is(err, zk.ErrNoNode) { // it concerns only its own znode
		t.Errorf("their late release: %v, want ErrNoNode", err)
	}
	must(t, lease.Extend(t.Context(), time.Minute))
	must(t, lease.Unlock())
	m.wantEmpty(t)
}

// Other programs find the lock of a name at PREFIX/NAME. A slash and a percent sign are escaped.
func TestForeignNames(t *testing.T) {
	t.Parallel()
	m := newMixed(t)
	for theirs, ours := range map[string]string{
		"plain": "plain", "jobs%2Fbackup": "jobs/backup", "50%25": "50%", "with space": "with space", "ünï": "ünï", "order:42": "order:42",
	} {
		entry := m.add(t, theirs, "lock-")
		if _, err := m.locks.Mutex(ours).TryLock(t.Context()); !errors.Is(err, dibs.ErrBusy) {
			t.Errorf("%s: %v, want ErrBusy", theirs, err)
		}
		if names, err := m.store.List(soon(t), "*"); err != nil || !slices.Equal(names, []string{ours}) {
			t.Errorf("%s: listed as %q, %v", theirs, names, err)
		}
		m.delete(t, theirs, entry)
	}
	for _, ours := range []string{".", "..", "%base", "%clock", "%letters", "a\x00b", "\u0001", "\ufffe", "\ue000"} {
		if driver.CheckName(ours) != nil {
			continue
		}
		lease, err := m.locks.Mutex(ours).TryLock(t.Context())
		if err != nil {
			t.Errorf("%q: %v", ours, err)
			continue
		}
		if names, err := m.store.List(soon(t), "*"); err != nil || !slices.Equal(names, []string{ours}) {
			t.Errorf("%q: listed as %q, %v", ours, names, err)
		}
		must(t, lease.Unlock())
	}
}
