package dashboard

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dibslock/dibs/checkup"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/memstore"
)

// checkMetrics lets promtool read metrics, which must not complain.
func checkMetrics(t *testing.T, text string) {
	t.Helper()
	path, err := exec.LookPath("promtool")
	if err != nil {
		if os.Getenv("DIBS_REQUIRE_PROMETHEUS") == "1" {
			t.Fatal(err)
		}
		t.Skip("SKIPPED: no promtool is installed; `make test` installs it")
	}
	c := exec.CommandContext(t.Context(), path, "check", "metrics")
	c.Stdin = strings.NewReader(text)
	if out, err := c.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("promtool: %v\n%s\nin\n%s", err, out, text)
	}
}

// release releases a lease.
func release(t *testing.T, s driver.Store, name, token string) {
	t.Helper()
	if _, err := s.Release(t.Context(), driver.ReleaseRequest{Name: name, Token: token}); err != nil {
		t.Fatal(err)
	}
}

// recorded starts to record a store, and polls it once.
func recorded(t *testing.T, s driver.Store, c Config) *Dashboard {
	t.Helper()
	h := New(s, c)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		h.Record(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	synctest.Wait()
	return h
}

func TestMetrics(t *testing.T) {
	var metrics string
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		h := recorded(t, s, Config{Doctor: func(context.Context) (checkup.Findings, error) { return someFindings, nil }})
		first, second := tokenOf("web-7", 211, driver.KindMutex, 1, ""), tokenOf("web-8", 212, driver.KindMutex, 1, "")
		acquire(t, s, "order:42", first)
		acquire(t, s, "order:42", second)
		acquire(t, s, "report", tokenOf("web-9", 213, driver.KindElection, 1, ""))
		acquire(t, s, `odd"\`+"\n", first)
		time.Sleep(2 * time.Second)
		body(t, h, "metrics") // which polls, and calls the doctor
		release(t, s, "order:42", first)
		time.Sleep(2 * time.Second)
		metrics = body(t, h, "metrics")
	})
	for _, line := range []string{
		`dibs_holding{class="order:*"} 1`, `dibs_holding{class="report"} 1`, `dibs_holding{class="other"} 0`, `dibs_holding{class="odd\"\\\n"} 1`,
		`dibs_waiting{class="order:*"} 0`, `dibs_longest_wait_seconds{class="order:*"} 0`,
		`dibs_acquire_seconds_count{class="order:*",kind="mutex",result="acquired"} 1`,
		`dibs_acquire_seconds_count{class="order:*",kind="mutex",result="notified"} 1`,
		`dibs_acquire_seconds_bucket{class="order:*",kind="mutex",result="notified",le="1"} 0`,
		`dibs_acquire_seconds_bucket{class="order:*",kind="mutex",result="notified",le="5"} 1`,
		`dibs_acquire_seconds_count{class="report",kind="election",result="acquired"} 1`,
		`dibs_lost_total{class="order:*",reason="revoked"} 0`,
		`dibs_store_up 1`, `dibs_names_held 3`, `dibs_names_waited 0`, `dibs_cycles{sure="true"} 0`, `dibs_poll_failed_total 0`,
		`dibs_findings{severity="critical"} 1`, `dibs_findings{severity="unchecked"} 0`, `dibs_doctor_failed 0`,
	} {
		wantText(t, metrics, "\n"+line+"\n")
	}
	wantNoText(t, metrics, "dibs_node_up", "web-7")
	checkMetrics(t, metrics)
}

// In an outage only the counters should be known.
func TestMetricsOfAnOutage(t *testing.T) {
	var metrics string
	synctest.Test(t, func(t *testing.T) {
		s := &changedStore{Full: driver.Complete(held(t, "a"))}
		h := New(s, Config{})
		wantText(t, body(t, h, "metrics"), "\ndibs_store_up 1\n", "\ndibs_names_held 1\n")
		s.away.Store(true)
		time.Sleep(2 * time.Second)
		metrics = body(t, h, "metrics")
	})
	wantText(t, metrics, "\ndibs_store_up 0\n", "\ndibs_poll_failed_total 1\n", "\ndibs_poll_seconds_count 2\n", "\ndibs_poll_answered_timestamp_seconds ")
	wantNoText(t, metrics, "dibs_names_held", "dibs_holding", "dibs_cycles")
	checkMetrics(t, metrics)
}

// A largeStore needs a while for its states.
type largeStore struct{ *driver.Full }

func (s largeStore) InspectAll(ctx context.Context, names []string) ([]driver.State, error) {
	time.Sleep(scrapeTime + 2*time.Second)
	return s.Full.InspectAll(ctx, names)
}

// A slow poll must not delay the answer for longer than Prometheus waits, and does not mean that
// the store is down. It must end without the scrape that began it.
func TestMetricsOfALargeStore(t *testing.T) {
	var metrics string
	synctest.Test(t, func(t *testing.T) {
		h := New(largeStore{driver.Complete(held(t, "a"))}, Config{Timeout: time.Minute})
		scrape := func() {
			began := time.Now()
			metrics = body(t, h, "metrics")
			if took := time.Since(began); took != scrapeTime {
				t.Errorf("it took %v", took)
			}
		}
		scrape()
		wantText(t, metrics, "\ndibs_poll_seconds_count 0\n")
		wantNoText(t, metrics, "dibs_store_up", "dibs_names_held")
		for range 2 { // each begins a poll, and returns the previous poll's result
			time.Sleep(10 * time.Second)
			scrape()
			wantText(t, metrics, "\ndibs_store_up 1\n", "\ndibs_names_held 1\n")
		}
		time.Sleep(10 * time.Second) // until InspectAll returns
	})
	checkMetrics(t, metrics)
}

func TestMetricsOfNodes(t *testing.T) {
	s := &changedStore{Full: driver.Complete(held(t, "a")), change: func(s *driver.State) {
		s.Nodes = []driver.NodeState{{}, {Err: errAway}, {Err: errors.New("odd")}}
	}}
	metrics := body(t, New(s, Config{}), "metrics")
	wantText(t, metrics, `dibs_node_up{node="0"} 1`, `dibs_node_up{node="1"} 0`, `dibs_node_up{node="2"} 1`)
	checkMetrics(t, metrics)
}

func TestMetricsOfARevocation(t *testing.T) {
	s := held(t, "order:42")
	h := New(s, Config{Allow: anybody})
	wantText(t, body(t, h, "metrics"), `dibs_lost_total{class="order:*",reason="revoked"} 0`)
	formOf(t, h, "order:42").send(t, h)
	wantText(t, body(t, h, "metrics"), `dibs_lost_total{class="order:*",reason="revoked"} 1`)
}

// However many names there are, the classes are bounded.
func TestMetricsAreBounded(t *testing.T) {
	s := memstore.New()
	for i := range 1000 {
		acquire(t, s, strings.Repeat("a", i%30+1)+"."+strings.Repeat("b", i/30+1), fmt.Sprint("token", i))
	}
	if n := strings.Count(body(t, New(s, Config{}), "metrics"), "\ndibs_holding{"); n != 201 {
		t.Errorf("%d classes", n)
	}
}
