package dashboard

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/memstore"
)

func decoded[T any](t *testing.T, text string) (answer T) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &answer); err != nil {
		t.Fatal(err)
	}
	return answer
}

func TestEventsOfAllNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		h := recorded(t, s, Config{})
		for i := range maxEventRows + 50 {
			acquire(t, s, fmt.Sprint("n", i), tokenOf("web-7", 211, driver.KindMutex, 1, ""))
		}
		time.Sleep(pointTime)
		synctest.Wait()
		acquire(t, s, "last", tokenOf("web-7", 211, driver.KindMutex, 1, ""))
		time.Sleep(pointTime)
		answer := decoded[eventsAnswer](t, body(t, h, "api/events"))
		if len(answer.Events) != maxEventRows || answer.Events[0].Name != "last" || answer.Events[0].Event != "acquired" {
			t.Errorf("%d events, the first one is %+v", len(answer.Events), answer.Events[0])
		}
	})
}

func TestRevocations(t *testing.T) {
	s := held(t, "a")
	h := New(s, Config{Allow: anybody, User: func(*http.Request) string { return "eve" }})
	if answer := decoded[revocationsAnswer](t, body(t, h, "api/revocations")); answer.Revocations == nil || len(answer.Revocations) > 0 {
		t.Errorf("%+v", answer)
	}
	formOf(t, h, "a").send(t, h)
	answer := decoded[revocationsAnswer](t, body(t, h, "api/revocations"))
	if len(answer.Revocations) != 1 {
		t.Fatalf("%+v", answer)
	}
	one := answer.Revocations[0]
	if one.Name != "a" || one.User != "eve" || one.Reason != "host is gone" || one.Holder.Host != "web-7" || time.Since(one.Time) > time.Minute {
		t.Errorf("%+v", one)
	}
}
