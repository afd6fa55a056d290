package interop

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

func pausing() column {
	return column{"4 + 4 workers for 5 s", []string{"turns", "longest wait"}, workTogether}
}

func saturated() column {
	return column{"4 + 4 workers for 10 s, no pause", []string{"turns", "worst worker", "longest wait"}, workSaturated}
}

func alone() column {
	return column{"8 of theirs for 3 s, no pause", []string{"turns", "worst worker", "longest wait"}, workAlone}
}

func workTogether(t *testing.T, r *row, name string) []string {
	l := load{
		counter: name + ":counter", workers: 4, long: 5 * time.Second,
		ttl: r.loadTTL(), work: 3 * time.Millisecond, pause: 30 * time.Millisecond,
	}
	mine, theirs := r.hammerTogether(t, name, l)
	r.afterLoad(t, name, l, mine, theirs)
	return []string{turns(mine, theirs), longestWait(mine, theirs)}
}

// workSaturated is without pauses: each worker wants the lock again at once.
func workSaturated(t *testing.T, r *row, name string) []string {
	l := load{
		counter: name + ":counter", workers: 4, long: 10 * time.Second,
		ttl: r.loadTTL(), work: 3 * time.Millisecond,
	}
	mine, theirs := r.hammerTogether(t, name, l)
	r.afterLoad(t, name, l, mine, theirs)
	r.wantTurns(t, name)
	return []string{turns(mine, theirs), worstWorker(mine, theirs), longestWait(mine, theirs)}
}

// workAlone measures how the library shares the lock among its own workers, without dibs.
func workAlone(t *testing.T, r *row, name string) []string {
	l := load{
		counter: name + ":counter", workers: 8, long: 3 * time.Second,
		ttl: r.loadTTL(), work: 3 * time.Millisecond,
	}
	alone, err := r.theirs.hammer(t.Context(), name, l)
	if err != nil {
		t.Fatalf("theirs: %v", err)
	}
	wantCount(t, r.rdb, l, alone)
	t.Logf("alone: %+v", alone)
	r.afterLoad(t, name, l, result{}, alone)
	return []string{turns(alone), worstWorker(alone), longestWait(alone)}
}

// hammerTogether lets the workers of dibs and of the library work on the same counter. No two
// workers should be inside at once, and no turn should be lost.
func (r *row) hammerTogether(t *testing.T, name string, l load) (mine, theirs result) {
	t.Helper()
	return r.hammerBoth(t, name, l, l)
}

// hammerBoth is hammerTogether with a load for dibs and another for the library.
func (r *row) hammerBoth(t *testing.T, name string, l, other load) (mine, theirs result) {
	t.Helper()
	return hammerBoth(t, r.rdb, goHammerer{dibsLocker{r.dibs}, r.rdb}, r.theirs, name, l, other)
}

func hammerBoth(t *testing.T, rdb redis.Cmdable, dibs, library hammerer, name string, l, other load) (mine, theirs result) {
	t.Helper()
	type outcome struct {
		result
		err error
	}
	external := make(chan outcome, 1)
	go func() {
		done, err := library.hammer(t.Context(), name, other)
		external <- outcome{done, err}
	}()
	mine, err := dibs.hammer(t.Context(), name, l)
	o := <-external
	if err != nil || o.err != nil {
		t.Fatalf("dibs: %v; theirs: %v", err, o.err)
	}
	wantCount(t, rdb, l, mine, o.result)
	t.Logf("dibs: %+v; theirs: %+v", mine, o.result)
	return mine, o.result
}

func wantCount(t *testing.T, rdb redis.Cmdable, l load, results ...result) {
	t.Helper()
	count, err := rdb.Get(t.Context(), l.counter).Int()
	if err != nil && !errors.Is(err, redis.Nil) {
		t.Fatal(err)
	}
	var sum, overlaps int
	for _, done := range results {
		sum += done.turns
		overlaps += done.overlaps
	}
	if count != sum {
		t.Errorf("the counter is %d after %d turns", count, sum)
	}
	if overlaps > 0 {
		t.Errorf("%d turns began while another worker was inside: %+v", overlaps, results)
	}
}

// afterLoad checks that no call failed, or the library is known to break. Then its last lock ends
// with its TTL.
func (r *row) afterLoad(t *testing.T, name string, l load, mine, theirs result) {
	t.Helper()
	if mine.failures > 0 {
		t.Errorf("dibs: %d calls have failed: %s", mine.failures, mine.failure)
	}
	if r.breaks {
		r.waitUntilExpired(t, name, l.ttl)
	} else if theirs.failures > 0 {
		t.Errorf("theirs: %d calls have failed: %s", theirs.failures, theirs.failure)
	}
}

// loadTTL is long enough for a worker that stops while it holds the lock. With a library whose
// workers wait for the end of a TTL under load, the TTL is much shorter than the load.
func (r *row) loadTTL() time.Duration {
	if r.breaks || r.sleeps {
		return 5 * time.Second
	}
	return patience
}

// The cells contain dibs' figures, a comma, and theirs.

func turns(results ...result) string {
	return join(results, func(r result) string {
		if r.failures > 0 {
			return fmt.Sprintf("%d and %d errors", r.turns, r.failures)
		}
		return strconv.Itoa(r.turns)
	})
}

func worstWorker(results ...result) string {
	return join(results, func(r result) string { return strconv.Itoa(r.least) })
}

func longestWait(results ...result) string {
	return join(results, func(r result) string { return fmt.Sprintf("%.1f s", r.longest.Seconds()) })
}

func join(results []result, format func(result) string) string {
	var words []string
	for _, r := range results {
		words = append(words, format(r))
	}
	return strings.Join(words, ", ")
}

// waitUntilExpired waits for a lock's expiry after the library failed to release it.
func (r *row) waitUntilExpired(t *testing.T, name string, ttl time.Duration) {
	t.Helper()
	for deadline := time.Now().Add(ttl + patience); r.value(t, name) != nil; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the lock key still holds %v after the TTL", r.value(t, name))
		}
	}
}
