package dashboard

import (
	"context"
	"encoding/json"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dibslock/dibs/checkup"
)

var someFindings = checkup.Findings{
	{Severity: checkup.Critical, Node: "10.0.0.1:6379", Subject: "eviction", What: "allkeys-lru <b>\x1b", Consequence: "locks are evicted", Remedy: "noeviction"},
	{Severity: checkup.Warning, Subject: "disk", What: "w", Consequence: "c", Remedy: "r"},
	{Severity: checkup.Note, Subject: "prefix", What: "w", Consequence: "c", Remedy: "r"},
}

func TestDoctor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := New(held(t, "a"), Config{Doctor: func(context.Context) (checkup.Findings, error) {
			time.Sleep(time.Second)
			return someFindings, nil
		}})
		wantNoText(t, body(t, h, ""), "The doctor") // which does not wait for it
		wantText(t, body(t, h, "doctor"), "eviction", "10.0.0.1:6379", "allkeys-lru &lt;b&gt;\\x1b", "noeviction", ">critical<", ">note<")
		wantText(t, body(t, h, ""), "The doctor has findings: 1 critical, 1 warning.")
		var answer findingsAnswer
		if err := json.Unmarshal([]byte(body(t, h, "api/findings")), &answer); err != nil {
			t.Fatal(err)
		}
		if answer.Worst != "critical" || len(answer.Findings) != 3 || answer.Findings[0].Subject != "eviction" || answer.Time.IsZero() {
			t.Errorf("%+v", answer)
		}
	})
}

// However many requests there are, the doctor is called once a minute, and only while there
// are requests.
func TestDoctorIsCalledOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int64
		h := New(held(t, "a"), Config{Doctor: func(context.Context) (checkup.Findings, error) {
			calls.Add(1)
			return nil, nil
		}})
		ctx, cancel := context.WithCancel(t.Context())
		_, wait := open(ctx, h, "events?view=doctor")
		done := make(chan struct{})
		for range 10 {
			go func() {
				get(t, h, "doctor")
				get(t, h, "")
				done <- struct{}{}
			}()
		}
		for range 10 {
			<-done
		}
		if n := calls.Load(); n != 1 {
			t.Errorf("%d calls at the beginning", n)
		}
		time.Sleep(3*time.Minute + 30*time.Second)
		if n := calls.Load(); n != 4 {
			t.Errorf("%d calls within 3m30s", n)
		}
		cancel()
		wait()
		time.Sleep(time.Hour)
		if n := calls.Load(); n != 4 {
			t.Errorf("%d calls although nobody watches", n-4)
		}
	})
}

func TestDoctorFails(t *testing.T) {
	for what, doctor := range map[string]func(context.Context) (checkup.Findings, error){
		"no route to host":           func(context.Context) (checkup.Findings, error) { return nil, errors.New("no route to host") },
		"the doctor panicked: a bug": func(context.Context) (checkup.Findings, error) { panic("a bug") },
		"context deadline exceeded": func(ctx context.Context) (checkup.Findings, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			h := New(held(t, "a"), Config{Doctor: doctor})
			began := time.Now()
			body(t, h, "doctor")
			if took := time.Since(began); took > firstPoll {
				t.Errorf("the page waited for %v", took)
			}
			time.Sleep(doctorTime)
			wantText(t, body(t, h, "doctor"), "The check failed: "+what)
			wantText(t, body(t, h, "api/findings"), what)
			wantText(t, body(t, h, ""), "The check of the doctor has failed.")
		})
	}
}

// Findings from before a doctor's failure are shown.
func TestDoctorFailsAfterFindings(t *testing.T) {
	var metrics string
	synctest.Test(t, func(t *testing.T) {
		h := New(held(t, "a"), Config{Doctor: func(context.Context) (checkup.Findings, error) {
			return someFindings[:1], errors.New("connection refused")
		}})
		wantText(t, body(t, h, "doctor"), "The check failed: connection refused", "allkeys-lru")
		wantText(t, body(t, h, ""), "The check of the doctor has failed.", "The doctor has findings: 1 critical.")
		metrics = body(t, h, "metrics")
	})
	wantText(t, metrics, "\ndibs_findings{severity=\"critical\"} 1\n", "\ndibs_doctor_failed 1\n")
	wantNoText(t, metrics, "dibs_findings{severity=\"warning\"}")
	checkMetrics(t, metrics)
}

func TestDoctorFindsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := New(held(t, "a"), Config{Doctor: func(context.Context) (checkup.Findings, error) { return nil, nil }})
		wantText(t, body(t, h, "doctor"), "The doctor has found nothing.")
		wantNoText(t, body(t, h, ""), "The doctor")
	})
}
