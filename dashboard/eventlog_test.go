package dashboard

import (
	"encoding/json"
	"fmt"
	"html"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dibslock/dibs/dashboard/view"
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

// The page contains all names' events, and the revocations.
func TestEventsPage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &changedStore{Full: driver.Complete(memstore.New())}
		h := recorded(t, s, Config{Allow: anybody, User: func(*http.Request) string { return "eve <b>" }})
		for _, name := range hostileNames {
			acquire(t, s, name, tokenOf("web-7", 211, driver.KindMutex, 1, ""))
		}
		time.Sleep(2 * time.Second)
		for _, name := range hostileNames {
			formOf(t, h, name).send(t, h)
		}
		s.away.Store(true)
		time.Sleep(2 * time.Second)
		page := body(t, h, "log")
		_, text := structure(t, page)
		for _, name := range hostileNames {
			linkTo(t, page, name)
			wantText(t, text, view.Safe(name))
		}
		wantText(t, page, ">Revocations", "<bdi title=\"eve &lt;b&gt;\">", "host is gone", "<b>revoked</b>", "<b>acquired</b>", "<b>away</b>", "connection refused")
		for _, link := range anyLink.FindAllStringSubmatch(page, -1) {
			if path, _, _ := strings.Cut(html.UnescapeString(link[1]), "?"); !ownLink.MatchString(path) {
				t.Errorf("link %q", link[1])
			}
		}
	})
}

// A time on another day includes its date, on the page for all events and on the name's.
func TestEventsOfAnotherDay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // it begins at midnight on 2000-01-01 in UTC
		s := memstore.New()
		h := recorded(t, s, Config{Every: 30 * time.Second})
		acquire(t, s, "a", tokenOf("web-7", 211, driver.KindMutex, 1, ""))
		time.Sleep(2 * time.Minute)
		const today, before = ">00:0", ">2000-01-01 00:0"
		for _, page := range []string{"log", nameLink("a")} {
			text := body(t, h, page)
			wantText(t, text, today, "since 00:00:")
			wantNoText(t, text, before)
		}
		time.Sleep(24 * time.Hour)
		for _, page := range []string{"log", nameLink("a")} {
			text := body(t, h, page)
			wantText(t, text, before, "since 2000-01-01 00:00:")
		}
	})
}

// An open page gets the new events, but not its own events again.
func TestLiveEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		h := recorded(t, s, Config{})
		for i := range maxEventRows {
			acquire(t, s, fmt.Sprint("n", i%10, ".", i), tokenOf("web-7", 211, driver.KindMutex, 1, ""))
		}
		time.Sleep(2 * time.Second)
		old := body(t, h, "fragment?view=log")
		acquire(t, s, "new", tokenOf("web-7", 211, driver.KindMutex, 1, ""))
		time.Sleep(2 * time.Second)
		now := body(t, h, "fragment?view=log")
		steps, err := deltaOf(old, now)
		wantText(t, string(steps), `href=\"name?n=new\"`)
		if err != nil || len(steps) > 1000 {
			t.Errorf("%d bytes for one event, %v", len(steps), err)
		}
	})
}
