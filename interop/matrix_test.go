package interop

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/internal/redistest"
	"github.com/redis/go-redis/v9"
)

const (
	longTTL = time.Minute
	// shortTTL is for locks that have to expire. python-redis-lock counts in whole seconds.
	shortTTL = time.Second
)

// careless is the row of a hand-written lock that does not compare the value. It shows what
// the columns find, and what dibs does then.
const careless = "`SET NX` and `DEL`"

// A row of the matrix is a library beside dibs on one server.
type row struct {
	library, version, runtime string
	redis                     string // the version of the server

	theirs hammerer
	dibs   *dibs.Client // with the prefix of the library
	prefix string
	server *redistest.Server
	rdb    *redis.Client
	cells  []string // one of each column
}

// A column of the matrix is a test of a row on a name of its own. It returns the text of
// the cell.
type column struct {
	title string
	test  func(t *testing.T, r *row, name string) string
}

// columns returns all columns but the last one, which has the machine for itself.
func columns() []column {
	return []column{
		{"dibs first", dibsFirst},
		{"theirs first", theirsFirst},
		{"theirs expires", theirsExpires},
		{"dibs expires", dibsExpires},
		{"their late release", theirLateRelease},
		{"dibs' late release", dibsLateRelease},
		{"their late extension", theirLateExtension},
		{"beside a reader", besideReader},
		{"beside a permit", besidePermit},
		{"forced release", forcedRelease},
	}
}

var underLoad = column{"4 + 4 workers for 5 s", workTogether}

// TestMatrix tests each library with each column, and writes the results as a table.
func TestMatrix(t *testing.T) {
	value := os.Getenv(selectVariable)
	if value == "" {
		t.Skipf("SKIPPED: it downloads libraries of Python and JavaScript: set %s=1, or see drivers/README.md", selectVariable)
	}
	selection, err := selectLanguages(value, available)
	if err != nil {
		t.Fatal(err)
	}
	for name, err := range selection.skipped {
		t.Run(name, func(t *testing.T) { t.Skipf("SKIPPED: %v", err) })
	}
	var rows []*row
	run := func(library string, start func(t *testing.T, r *row)) {
		t.Run(library, func(t *testing.T) {
			r := &row{library: library}
			r.server = redistest.Start(t)
			r.rdb = dial(t, r.server)
			r.redis = serverVersion(t, r.rdb)
			start(t, r)
			t.Logf("%s %s, %s, lock key %s", r.library, r.version, r.runtime, r.key("NAME"))
			rows = append(rows, r)
			r.run(t)
		})
	}
	for _, library := range []string{"redsync", "redislock", careless} {
		run(library, func(t *testing.T, r *row) { r.startGo(t) })
	}
	for _, l := range selection.languages {
		dir, err := l.prepare(t)
		if err != nil {
			t.Errorf("install the libraries of %s: %v", l.name, err)
			continue
		}
		for _, library := range l.libraries {
			run(library, func(t *testing.T, r *row) { r.startExternal(t, l, dir) })
		}
	}
	writeTable(t, rows)
}

func serverVersion(t *testing.T, rdb *redis.Client) string {
	t.Helper()
	info, err := rdb.InfoMap(t.Context(), "server").Result()
	if err != nil {
		t.Fatal(err)
	}
	return info["Server"]["redis_version"]
}

func (r *row) startGo(t *testing.T) {
	r.runtime = "Go " + strings.TrimPrefix(runtime.Version(), "go")
	peers := goPeers(r.rdb)
	switch r.library {
	case "redsync":
		r.version = moduleVersion(t, "github.com/go-redsync/redsync/v4")
	case "redislock":
		r.version = moduleVersion(t, "github.com/bsm/redislock")
	case careless:
		r.version = "none"
		peers[careless] = carelessLocker{r.rdb}
	}
	r.theirs = goHammerer{peers[r.library], r.rdb}
	r.dibs = newDibs(t, r.rdb, r.prefix)
}

// moduleVersion asks the go command: the binary of a test has no list of its modules.
func moduleVersion(t *testing.T, path string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Version}}", path).Output()
	if err != nil {
		t.Fatalf("go list -m %s: %v", path, err)
	}
	return strings.TrimPrefix(strings.TrimSpace(string(out)), "v")
}

func (r *row) startExternal(t *testing.T, l language, dir string) {
	theirs := startExternal(t, dir, append(l.run, r.library, r.server.URL())...)
	d, err := theirs.describe(t.Context(), "NAME")
	if err != nil {
		t.Fatal(err)
	}
	prefix, ok := strings.CutSuffix(d.key, "NAME")
	if !ok {
		t.Fatalf("the lock key of NAME is %q: dibs cannot have that key", d.key)
	}
	r.version, r.runtime, r.prefix, r.theirs = d.version, d.runtime, prefix, theirs
	r.dibs = newDibs(t, r.rdb, prefix)
}

// run tests all columns at once, and then the load.
func (r *row) run(t *testing.T) {
	r.cells = make([]string, len(columns())+1)
	t.Run("columns", func(t *testing.T) {
		for i, c := range columns() {
			t.Run(c.title, func(t *testing.T) {
				t.Parallel()
				r.test(t, i, c)
			})
		}
	})
	t.Run(underLoad.title, func(t *testing.T) { r.test(t, len(columns()), underLoad) })
}

func (r *row) test(t *testing.T, at int, c column) {
	r.cells[at] = "**no**"
	name := fmt.Sprintf("order:%d", at)
	cell := c.test(t, r, name)
	if value := r.value(t, name); value != nil {
		t.Errorf("the lock key still holds %v", value)
	}
	if !t.Failed() {
		r.cells[at] = cell
	}
}

func (r *row) key(name string) string { return r.prefix + name }

func (r *row) value(t *testing.T, name string) any {
	t.Helper()
	return r.server.MustCmd(t, "GET", r.key(name))
}

func (r *row) wantValue(t *testing.T, name, want string) {
	t.Helper()
	if have := r.value(t, name); have != want {
		t.Errorf("the lock key holds %v, want %s", have, want)
	}
}

// acquire lets the library acquire a free lock.
func (r *row) acquire(t *testing.T, name string, ttl time.Duration) lock {
	t.Helper()
	l, err := r.theirs.try(t.Context(), name, ttl)
	if err != nil {
		t.Fatalf("theirs: %v", err)
	}
	r.wantValue(t, name, l.value())
	return l
}

// release lets the library release a lock that it holds.
func (r *row) release(t *testing.T, name string, l lock) {
	t.Helper()
	ok, err := l.unlock(t.Context())
	if !errors.Is(err, errUnreported) && (err != nil || !ok) {
		t.Errorf("theirs: unlock: %v, %v", ok, err)
	}
	if have := r.value(t, name); have == l.value() {
		t.Error("theirs: the lock key still holds their value after unlock")
	}
}

// lock lets dibs wait for a lock, longer than any column needs.
func (r *row) lock(ctx context.Context, name string, options ...dibs.Option) (*dibs.Lease, error) {
	return r.dibs.Mutex(name).Lock(ctx, append(options, dibs.Wait(20*time.Second))...)
}

// wantBusy is for a name that dibs holds.
func (r *row) wantBusy(t *testing.T, name string) {
	t.Helper()
	value := r.value(t, name)
	_, err := r.theirs.try(t.Context(), name, longTTL)
	wantHeld(t, "theirs", err)
	if have := r.value(t, name); have != value {
		t.Errorf("their try has changed the lock key from %v to %v", value, have)
	}
}

// wantHeldByDibs checks that a lease is held, in the store too.
func (r *row) wantHeldByDibs(t *testing.T, lease *dibs.Lease) {
	t.Helper()
	r.wantValue(t, lease.Name(), lease.Token())
	if err := lease.Extend(t.Context(), longTTL); err != nil {
		t.Errorf("dibs: extend: %v", err)
	}
}

func mustLease(t *testing.T, lease *dibs.Lease, err error) *dibs.Lease {
	t.Helper()
	if err != nil {
		t.Fatalf("dibs: %v", err)
	}
	return lease
}

func mustUnlock(t *testing.T, lease *dibs.Lease) {
	t.Helper()
	if err := lease.Unlock(); err != nil {
		t.Errorf("dibs: unlock: %v", err)
	}
}

// mustTake checks how long it took to acquire a lock.
func mustTake(t *testing.T, begin time.Time, least, most time.Duration) {
	t.Helper()
	took := time.Since(begin)
	t.Logf("acquired after %v", took.Round(time.Millisecond))
	if took < least-10*time.Millisecond || took > most+slack {
		t.Errorf("acquired after %v, want %v to %v", took, least, most)
	}
}

// refused checks the outcome of a request for a lock that is not held any more.
func refused(t *testing.T, what string, ok bool, err error) string {
	t.Helper()
	if errors.Is(err, errUnreported) {
		return "yes, but not reported"
	}
	if ok || err != nil {
		t.Errorf("theirs: %s: %v, %v: want that it is refused", what, ok, err)
	}
	return "yes"
}

func dibsFirst(t *testing.T, r *row, name string) string {
	lease, err := r.dibs.Mutex(name).TryLock(t.Context())
	mustLease(t, lease, err)
	r.wantBusy(t, name)
	r.wantHeldByDibs(t, lease)
	mustUnlock(t, lease)
	r.release(t, name, r.acquire(t, name, longTTL))
	return "yes"
}

func theirsFirst(t *testing.T, r *row, name string) string {
	l := r.acquire(t, name, longTTL)
	_, err := r.dibs.Mutex(name).TryLock(t.Context())
	busy, ok := errors.AsType[*dibs.BusyError](err)
	if !ok || busy.Holder != l.value() {
		t.Fatalf("dibs: %v, want a BusyError with the holder %s", err, l.value())
	}
	type outcome struct {
		lease *dibs.Lease
		err   error
	}
	acquired := make(chan outcome, 1)
	go func() {
		lease, err := r.lock(t.Context(), name)
		acquired <- outcome{lease, err}
	}()
	waitUntilQueued(t, r.dibs, name, 1)
	if ok, err := l.extend(t.Context(), longTTL); !ok || err != nil {
		t.Errorf("theirs: extend: %v, %v", ok, err)
	}
	r.release(t, name, l)
	released := time.Now()
	o := <-acquired
	lease := mustLease(t, o.lease, o.err)
	mustTake(t, released, 0, recheck)
	r.wantHeldByDibs(t, lease)
	mustUnlock(t, lease)
	return "yes"
}

func theirsExpires(t *testing.T, r *row, name string) string {
	begin := time.Now()
	r.acquire(t, name, shortTTL)
	lease, err := r.lock(t.Context(), name)
	mustLease(t, lease, err)
	mustTake(t, begin, shortTTL, shortTTL)
	r.wantHeldByDibs(t, lease)
	mustUnlock(t, lease)
	return "yes"
}

func dibsExpires(t *testing.T, r *row, name string) string {
	begin := time.Now()
	lease, err := r.dibs.Mutex(name).TryLock(t.Context(), dibs.TTL(shortTTL), dibs.NoRenew())
	mustLease(t, lease, err)
	l, err := r.theirs.lock(t.Context(), name, longTTL)
	must(t, l, err)
	mustTake(t, begin, shortTTL, shortTTL)
	r.wantValue(t, name, l.value())
	if err := lease.Err(); !errors.Is(err, dibs.ErrLost) {
		t.Errorf("dibs: %v, want ErrLost", err)
	}
	r.release(t, name, l)
	return "yes"
}

func theirLateRelease(t *testing.T, r *row, name string) string {
	const ttl = 3 * time.Second
	l := r.acquire(t, name, shortTTL)
	lease, err := r.lock(t.Context(), name, dibs.TTL(ttl))
	mustLease(t, lease, err)
	ok, err := l.unlock(t.Context())
	if r.library == careless {
		if !ok || err != nil {
			t.Errorf("theirs: unlock: %v, %v: want that it releases the lock of dibs", ok, err)
		}
		wantToldOfLoss(t, lease, ttl/3+time.Second)
		return "**no**: it releases the lock of dibs"
	}
	cell := refused(t, "unlock", ok, err)
	r.wantHeldByDibs(t, lease)
	mustUnlock(t, lease)
	return cell
}

func dibsLateRelease(t *testing.T, r *row, name string) string {
	lease, err := r.dibs.Mutex(name).TryLock(t.Context(), dibs.TTL(shortTTL), dibs.NoRenew())
	mustLease(t, lease, err)
	l, err := r.theirs.lock(t.Context(), name, longTTL)
	must(t, l, err)
	if err := lease.Unlock(); !errors.Is(err, dibs.ErrLost) {
		t.Errorf("dibs: unlock: %v, want ErrLost", err)
	}
	r.wantValue(t, name, l.value())
	if ok, err := l.extend(t.Context(), longTTL); !ok || err != nil {
		t.Errorf("theirs: extend: %v, %v", ok, err)
	}
	r.release(t, name, l)
	return "yes"
}

// The lock key is deleted, and the TTL of their lock has not passed: so their library has
// to ask the server.
func theirLateExtension(t *testing.T, r *row, name string) string {
	l := r.acquire(t, name, longTTL)
	r.server.MustCmd(t, "DEL", r.key(name))
	lease, err := r.dibs.Mutex(name).TryLock(t.Context())
	mustLease(t, lease, err)
	ok, err := l.extend(t.Context(), longTTL)
	cell := "**no**: it changes the TTL of dibs"
	if r.library != careless {
		cell = refused(t, "extend", ok, err)
	} else if !ok || err != nil {
		t.Errorf("theirs: extend: %v, %v: want that it extends the lock of dibs", ok, err)
	}
	r.wantHeldByDibs(t, lease)
	mustUnlock(t, lease)
	return cell
}

func besideReader(t *testing.T, r *row, name string) string {
	return besideShared(t, r, name, func(ctx context.Context) (*dibs.Lease, error) { return r.dibs.RWMutex(name).TryRLock(ctx) })
}

func besidePermit(t *testing.T, r *row, name string) string {
	return besideShared(t, r, name, func(ctx context.Context) (*dibs.Lease, error) { return r.dibs.Semaphore(name, 3).TryAcquire(ctx, 1) })
}

// besideShared checks that two shared leases exclude the library until both have ended.
func besideShared(t *testing.T, r *row, name string, try func(context.Context) (*dibs.Lease, error)) string {
	first, err := try(t.Context())
	mustLease(t, first, err)
	second, err := try(t.Context())
	mustLease(t, second, err)
	r.wantBusy(t, name)
	mustUnlock(t, first)
	r.wantBusy(t, name)
	if err := second.Extend(t.Context(), longTTL); err != nil {
		t.Errorf("dibs: extend: %v", err)
	}
	mustUnlock(t, second)
	l := r.acquire(t, name, longTTL)
	if _, err := try(t.Context()); !errors.Is(err, dibs.ErrBusy) {
		t.Errorf("dibs: %v, want ErrBusy", err)
	}
	r.release(t, name, l)
	return "yes"
}

// The lock key of dibs is deleted by hand, and the library acquires the lock. dibs finds
// out when it renews its lease, after a third of the TTL.
func forcedRelease(t *testing.T, r *row, name string) string {
	const (
		ttl   = 9 * time.Second
		limit = ttl/3 + 2*time.Second // less than the TTL: it is not the end of the lease
	)
	lease, err := r.dibs.Mutex(name).TryLock(t.Context(), dibs.TTL(ttl))
	mustLease(t, lease, err)
	r.server.MustCmd(t, "DEL", r.key(name))
	l := r.acquire(t, name, longTTL)
	wantToldOfLoss(t, lease, limit)
	r.wantValue(t, name, l.value())
	r.release(t, name, l)
	return "yes"
}

// wantToldOfLoss waits until dibs has found out that its lock key is gone.
func wantToldOfLoss(t *testing.T, lease *dibs.Lease, limit time.Duration) {
	t.Helper()
	select {
	case <-lease.Context().Done():
	case <-time.After(limit):
		t.Fatalf("dibs: the loss was not detected within %v", limit)
	}
	lost, ok := errors.AsType[*dibs.LostError](lease.Err())
	if !ok || lost.Reason != dibs.ReasonTaken {
		t.Errorf("dibs: %v, want a LostError with %q", lease.Err(), dibs.ReasonTaken)
	}
}

func workTogether(t *testing.T, r *row, name string) string {
	l := load{
		counter: "counter", workers: 4, long: 5 * time.Second,
		ttl: 5 * time.Second, work: 3 * time.Millisecond, pause: 30 * time.Millisecond,
	}
	type outcome struct {
		result
		err error
	}
	external := make(chan outcome, 1)
	go func() {
		done, err := r.theirs.hammer(t.Context(), name, l)
		external <- outcome{done, err}
	}()
	mine, err := goHammerer{dibsLocker{r.dibs}, r.rdb}.hammer(t.Context(), name, l)
	theirs := <-external
	if err != nil || theirs.err != nil {
		t.Fatalf("dibs: %v; theirs: %v", err, theirs.err)
	}
	count, err := r.rdb.Get(t.Context(), l.counter).Int()
	if err != nil {
		t.Fatal(err)
	}
	if sum := mine.turns + theirs.turns; count != sum {
		t.Errorf("the counter is %d after %d turns", count, sum)
	}
	if mine.overlaps+theirs.overlaps > 0 {
		t.Errorf("overlaps: %d turns of dibs, %d of theirs", mine.overlaps, theirs.overlaps)
	}
	t.Logf("turns: dibs %d, theirs %d; longest wait: dibs %v, theirs %v", mine.turns, theirs.turns, mine.longest, theirs.longest)
	return fmt.Sprintf("yes: %d + %d turns, longest wait %.1f s and %.1f s", mine.turns, theirs.turns, mine.longest.Seconds(), theirs.longest.Seconds())
}
