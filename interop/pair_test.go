//go:build unix

package interop

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
)

// A pair is dibs beside another tool, on a lock's name.
type pair struct {
	tool   string
	store  string // see process.openStore
	name   string
	shares bool // some turns and victims are readers
	dibs   side
	theirs side
	toolVersion
}

// A side is how the workers and victims of dibs or of the tool use the lock.
type side struct {
	// prepare skips the test if the tool is not available. It can be nil.
	prepare func(t *testing.T)
	// turns returns the turns that repeat at the same time.
	turns func(r *pairRun, t *testing.T) []turn
	// victim returns the command of a process that holds the lock until it is killed.
	victim func(p process) *exec.Cmd
	part   string        // of the victims
	worker string        // the ID of workers in a process that a turn starts
	start  time.Duration // for how long a victim starts before it waits for the lock
}

// A turn acquires the lock, enters, works, leaves, and releases the lock.
type turn func(ctx context.Context) error

// goSide returns a side whose victims are processes of this test.
func goSide(part string, begin func(r *pairRun, t *testing.T) turn) side {
	return side{turns: each(begin), victim: func(p process) *exec.Cmd { return p.command() }, part: part}
}

// each returns a turn for each worker.
func each(begin func(r *pairRun, t *testing.T) turn) func(r *pairRun, t *testing.T) []turn {
	return func(r *pairRun, t *testing.T) []turn {
		var turns []turn
		for range pairWorkers {
			turns = append(turns, begin(r, t))
		}
		return turns
	}
}

const (
	pairWorkers = 3 // of each side
	pairWork    = 3 * time.Millisecond

	longestShort = 3 * time.Second
	workerTTL    = time.Minute
	victimTTL    = 4 * time.Second
)

// A backend is a server, and a store on it.
type backend struct {
	server string
	open   func(t *testing.T) driver.Store

	// entries returns the entries in the queue of a name.
	entries func(ctx context.Context, name string) ([]string, error)
}

// A pairRun is a run of a pair.
type pairRun struct {
	pair
	backend
	judge *judge
	long  time.Duration
	locks *dibs.Client
	kills [2]int           // dibs, theirs
	block [2]time.Duration // the longest time for which a killed holder blocked the name
}

func newPairRun(t *testing.T, p pair, b backend) *pairRun {
	t.Helper()
	for _, s := range []side{p.dibs, p.theirs} {
		if s.prepare != nil {
			s.prepare(t)
		}
	}
	r := &pairRun{pair: p, backend: b, judge: newJudge(t), long: longestShort}
	if os.Getenv(selectVariable) != "" {
		r.long = 30 * time.Second
	}
	r.locks = dibs.New(b.open(t), dibs.Timeout(patience))
	return r
}

func (r *pairRun) run(t *testing.T) pairRow {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var group, first sync.WaitGroup
	for _, s := range []side{r.dibs, r.theirs} {
		for _, turn := range s.turns(r, t) {
			first.Add(1)
			done := sync.OnceFunc(first.Done)
			group.Go(func() { repeat(ctx, t, turn, done) })
			if s.worker == "" {
				continue
			}
			group.Go(func() {
				select {
				case <-r.judge.victim(s.worker):
					done()
				case <-ctx.Done():
				}
			})
		}
	}
	r.kill(t)
	wantFirstTurns(t, &first)
	cancel()
	group.Wait()
	r.check(t)
	if err := r.locks.Close(); err != nil {
		t.Errorf("dibs: close: %v", err)
	}
	r.wantNothingLeft(t)
	row := pairRow{
		tool: r.tool, toolVersion: r.toolVersion, long: r.long,
		turns: [2]int{r.judge.turns["dibs"], r.judge.turns["theirs"]}, kills: r.kills, block: r.block,
	}
	t.Logf("%+v", row)
	return row
}

// repeat takes turns until ctx ends. It calls first after its first turn, or when it ends.
func repeat(ctx context.Context, t *testing.T, take turn, first func()) {
	defer first()
	for ctx.Err() == nil {
		if err := take(ctx); err != nil && ctx.Err() == nil {
			t.Error(err)
			return
		}
		first()
	}
}

// wantFirstTurns checks that each worker gets a turn while the others continue: the queue is in
// order of arrival.
func wantFirstTurns(t *testing.T, first *sync.WaitGroup) {
	t.Helper()
	all := make(chan struct{})
	go func() {
		first.Wait()
		close(all)
	}()
	select {
	case <-all:
	case <-time.After(patience):
		t.Errorf("a worker still waits for its first turn after %v", patience)
	}
}

func (r *pairRun) check(t *testing.T) {
	t.Helper()
	j := r.judge
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.overlaps > 0 {
		t.Errorf("%d turns began while another worker was inside", j.overlaps)
	}
	if j.inside[exclusive] != 0 || j.inside[shared] != 0 {
		t.Errorf("these workers are still inside: %v", j.inside)
	}
}

// wantNothingLeft waits until the queue is empty. A killed process's entry ends with its session.
func (r *pairRun) wantNothingLeft(t *testing.T) {
	t.Helper()
	const limit = patience
	for end := time.Now().Add(limit); ; time.Sleep(50 * time.Millisecond) {
		entries, err := r.entries(t.Context(), r.name)
		switch {
		case err != nil:
			t.Fatal(err)
		case len(entries) == 0:
			return
		case time.Now().After(end):
			t.Fatalf("after %v there are still %d entries: %s", limit, len(entries), entries)
		}
	}
}

// mode returns the mode of a turn.
func (p *pair) mode() mode {
	if p.shares && rand.N(2) == 0 {
		return shared
	}
	return exclusive
}

// enter is the work of a turn.
func (r *pairRun) enter(side string, m mode, fence uint64) error {
	err := r.judge.enter(side, m, fence)
	time.Sleep(pairWork)
	r.judge.leave(m)
	return err
}

func dibsMutex(r *pairRun, _ *testing.T) turn {
	return func(ctx context.Context) error {
		lease, err := r.locks.Mutex(r.name).Lock(ctx)
		return r.dibsTurn(lease, exclusive, err)
	}
}

func dibsElection(r *pairRun, _ *testing.T) turn {
	return func(ctx context.Context) error {
		lease, err := r.locks.Election(r.name).Campaign(ctx)
		return r.dibsTurn(lease, exclusive, err)
	}
}

func dibsRWMutex(r *pairRun, _ *testing.T) turn {
	return func(ctx context.Context) error {
		m := r.mode()
		lease, err := lockMode(ctx, r.locks.RWMutex(r.name), m)
		return r.dibsTurn(lease, m, err)
	}
}

// dibsBoth uses a name as a mutex and as a read-write mutex.
func dibsBoth(r *pairRun, t *testing.T) turn {
	t.Helper()
	mutex, rw := dibsMutex(r, t), dibsRWMutex(r, t)
	return func(ctx context.Context) error {
		if rand.N(3) == 0 {
			return mutex(ctx)
		}
		return rw(ctx)
	}
}

func (r *pairRun) dibsTurn(lease *dibs.Lease, m mode, err error) error {
	if err != nil {
		return fmt.Errorf("dibs: %w", err)
	}
	return errors.Join(r.enter("dibs", m, lease.Fence()), lease.Unlock())
}

// kill kills processes until the time has passed: in turn, a holder on each side, and then a process
// on each side at any moment, when most wait. In a pair that shares, the latter are readers that hold.
func (r *pairRun) kill(t *testing.T) {
	least, calm := 2, time.Second
	if r.isLong() {
		least, calm = 4, 2*time.Second
	}
	for begin, i := time.Now(), 0; i < least || time.Since(begin) < r.long; i++ {
		time.Sleep(calm) // the others work
		number := i % 2
		s := []side{r.dibs, r.theirs}[number]
		p, holds := r.process(number, fmt.Sprint(i), time.Hour, victimTTL), i%4 < 2
		if r.shares && !holds {
			p.mode, holds = shared, true
		}
		if err := r.killOne(number, s, p, holds); err != nil {
			t.Errorf("victim %s: %v", s.part, err)
			return
		}
		r.kills[number]++
	}
}

func (r *pairRun) isLong() bool { return r.long > longestShort }

// holding is how long a victim holds the lock. In a long run some victims end before their first
// renewal: they block the lock for up to 10 s.
func (r *pairRun) holding() time.Duration {
	if r.isLong() {
		return rand.N(time.Second)
	}
	return time.Second
}

// process returns a process of a side. number is 0 for dibs.
func (r *pairRun) process(number int, id string, inside, ttl time.Duration) process {
	return process{
		part: []side{r.dibs, r.theirs}[number].part, store: r.store, server: r.server, name: r.name,
		judge: r.judge.listener.Addr().String(), side: []string{"dibs", "theirs"}[number], id: id, mode: exclusive,
		inside: inside, ttl: ttl,
	}
}

func (r *pairRun) killOne(number int, s side, p process, holds bool) error {
	const limit = patience
	cmd := s.victim(p)
	var output strings.Builder
	cmd.Stderr = &output
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait()
	}()
	end := sync.OnceFunc(func() {
		killGroup(cmd)
		<-ended
	})
	defer end()
	if !holds {
		time.Sleep(rand.N(s.start + 500*time.Millisecond))
		return nil
	}
	select {
	case <-r.judge.victim(p.id):
	case <-ended:
		return fmt.Errorf("it ended: %s", output.String())
	case <-time.After(limit):
		return fmt.Errorf("it did not hold the lock after %v", limit)
	}
	time.Sleep(r.holding())
	next := r.judge.nextTurn()
	killed := time.Now()
	end()
	select {
	case <-next:
	case <-time.After(limit):
		return fmt.Errorf("nobody held the lock %v after its end", limit)
	}
	if p.mode == exclusive {
		r.block[number] = max(r.block[number], time.Since(killed))
	}
	return nil
}

// runPairs runs all pairs at the same time. A row of a skipped pair is empty.
func runPairs(t *testing.T, pairs []pair, run func(t *testing.T, p pair) pairRow) []pairRow {
	t.Helper()
	rows := make([]pairRow, len(pairs))
	var group sync.WaitGroup // not t.Parallel: its limit is the number of CPUs, but most runs only wait
	for i, p := range pairs {
		group.Go(func() {
			t.Run(p.tool, func(t *testing.T) { rows[i] = run(t, p) })
		})
	}
	group.Wait()
	return rows
}
