package interop

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/internal/test/redistest"
	"github.com/dibslock/dibs/redisstore"
	"github.com/redis/go-redis/v9"
)

const (
	// longTTL is longer than patience: who acquires a lock with it has not waited for its expiry.
	longTTL = time.Hour
	// shortTTL is for locks that should expire. python-redis-lock counts in whole seconds.
	shortTTL = 3 * time.Second
	// renewedTTL is for leases whose renewal should detect a loss. A busy machine should renew them
	// before they expire.
	renewedTTL = 15 * time.Second
)

// A row in the matrix is a library beside dibs on a single server.
type row struct {
	library
	startTheirs func(*row, *testing.T)

	version, runtime string
	redis            string // the server's name and version

	theirs hammerer
	dibs   *dibs.Client // with the library's prefix
	prefix string
	server *redistest.Server
	rdb    *redis.Client

	mu    sync.Mutex
	cells map[string][]string // by the column's title
}

// columns returns the columns for each phase.
func (r *row) columns() [][]column {
	switch {
	case r.otherForm:
		return [][]column{correctness: refusal(), waiting: {refusalUnderLoad()}, saturation: nil}
	case r.redisson:
		return [][]column{
			correctness: exclusionWithoutShared(),
			waiting:     append(wakeUps(), pausing(), alone()),
			saturation:  append(uneven(), saturated()),
		}
	}
	return [][]column{
		correctness: exclusion(),
		waiting:     append(wakeUps(), pausing(), alone()),
		saturation:  {saturated()},
	}
}

// TestMatrix tests each library in each column, and writes the results.
func TestMatrix(t *testing.T) {
	value := os.Getenv(selectVariable)
	if value == "" {
		t.Skipf("SKIPPED: it downloads libraries of other languages: set %s=available, or see drivers/README.md", selectVariable)
	}
	selection, err := selectLanguages(value, available)
	if err != nil {
		t.Fatal(err)
	}
	m := &matrix{phases: newPhases()}
	for _, l := range goLibraries() {
		m.add(l, (*row).startGo)
	}
	for _, l := range selection.languages {
		dir, err := l.prepare(t)
		if selection.skips && errors.Is(err, errDownload) {
			selection.skipped = append(selection.skipped, skipped{l, err})
			continue
		}
		if err != nil {
			t.Errorf("install the libraries of %s: %v", l.name, err)
			continue
		}
		for _, library := range l.libraries {
			m.add(library, func(r *row, t *testing.T) { r.startExternal(t, l, dir) })
		}
	}
	for _, s := range selection.skipped {
		s.report(t)
	}
	m.run(t)
	if err := writeResults(os.Getenv(resultsVariable), m.rows, selection.complete()); err != nil {
		t.Error(err)
	}
}

// A matrix contains a run's rows.
type matrix struct {
	rows   []*row
	phases []*phase
}

// add adds a row. The function start sets the row's fields for its library.
func (m *matrix) add(l library, start func(*row, *testing.T)) {
	m.rows = append(m.rows, &row{library: l, startTheirs: start, cells: make(map[string][]string)})
	for _, p := range m.phases {
		p.left.Add(1)
	}
}

// run tests all rows at once, each in its own subtest. They do not use t.Parallel: its limit is the
// number of CPUs, but most columns only wait.
func (m *matrix) run(t *testing.T) {
	var group sync.WaitGroup
	for _, r := range m.rows {
		group.Go(func() {
			selected := false
			t.Run(r.name, func(t *testing.T) {
				selected = true
				r.run(t, m.phases)
			})
			if !selected { // by the flag -run
				leave(m.phases)
			}
		})
	}
	group.Wait()
}

// run runs all phases. A failed row leaves all phases.
func (r *row) run(t *testing.T, phases []*phase) {
	for _, c := range slices.Concat(r.columns()...) {
		r.setCells(c, c.failed())
	}
	at := 0
	defer func() { leave(phases[at:]) }()
	for _, p := range phases {
		p.run(func() {
			if at == correctness {
				r.start(t)
			}
			r.test(t, at)
		})
		at++
		p.left.Done()
		p.left.Wait()
	}
}

func (r *row) start(t *testing.T) {
	r.server = redistest.Start(t)
	r.rdb = dial(t, r.server)
	r.redis = serverVersion(t, r.rdb)
	r.startTheirs(r, t)
	t.Logf("%s %s, %s, lock key %s, %s", r.name, r.version, r.runtime, r.key("NAME"), r.redis)
}

// test tests a phase's columns.
func (r *row) test(t *testing.T, phase int) {
	var group sync.WaitGroup
	for i, c := range r.columns()[phase] {
		name := fmt.Sprintf("order:%d.%d", phase, i)
		run := func() { t.Run(c.title, func(t *testing.T) { r.testColumn(t, c, name) }) }
		if phase == correctness {
			group.Go(run)
		} else {
			run()
		}
	}
	group.Wait()
}

func (r *row) testColumn(t *testing.T, c column, name string) {
	cells := c.test(t, r, name)
	r.wantFree(t, name)
	if !t.Failed() {
		r.setCells(c, cells)
	}
}

// wantFree checks that nobody holds the lock. A dibs waiter that gave up may have been granted the
// lock at that moment; its cancel runs in the background. A leaked lease never ends: its key loses
// its TTL.
func (r *row) wantFree(t *testing.T, name string) {
	t.Helper()
	for end := time.Now().Add(patience); r.value(t, name) != nil; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Errorf("the lock key still holds %v after %v", r.value(t, name), patience)
			return
		}
		r.server.MustCmd(t, "PERSIST", r.key(name))
	}
}

func (r *row) setCells(c column, cells []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cells[c.title] = cells
}

func serverVersion(t *testing.T, rdb *redis.Client) string {
	t.Helper()
	info, err := rdb.InfoMap(t.Context(), "server").Result()
	if err != nil {
		t.Fatal(err)
	}
	if version, ok := info["Server"]["valkey_version"]; ok {
		return "Valkey " + version
	}
	return "Redis " + info["Server"]["redis_version"]
}

func (r *row) startGo(t *testing.T) {
	r.runtime = "Go " + strings.TrimPrefix(runtime.Version(), "go")
	peers := goPeers(r.rdb)
	switch r.name {
	case "redsync":
		r.version = moduleVersion(t, "github.com/go-redsync/redsync/v4")
	case "redislock":
		r.version = moduleVersion(t, "github.com/bsm/redislock")
	case careless:
		r.version = "none"
		peers[careless] = carelessLocker{r.rdb}
	}
	r.theirs = goHammerer{peers[r.name], r.rdb}
	r.dibs = newDibs(t, r.rdb, r.prefix, redisstore.SharedKeys())
}

// moduleVersion asks the go command: a test binary contains no list of its modules.
func moduleVersion(t *testing.T, path string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Version}}", path).Output()
	if err != nil {
		t.Fatalf("go list -m %s: %v", path, err)
	}
	return strings.TrimPrefix(strings.TrimSpace(string(out)), "v")
}

func (r *row) startExternal(t *testing.T, l language, dir string) {
	theirs := startExternal(t, dir, append(l.run, r.driverName(), r.server.URL())...)
	d, err := theirs.describe(t.Context(), "NAME")
	if err != nil {
		t.Fatal(err)
	}
	prefix, ok := strings.CutSuffix(d.key, "NAME")
	if !ok {
		t.Fatalf("the lock key of NAME is %q: dibs cannot have that key", d.key)
	}
	r.version, r.runtime, r.prefix, r.theirs = d.version, d.runtime, prefix, theirs
	r.dibs = newDibs(t, r.rdb, prefix, append([]redisstore.Option{redisstore.SharedKeys()}, r.store...)...)
}
