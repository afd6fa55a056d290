package dashboard

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/memstore"
)

func TestRevoke(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &changedStore{Full: driver.Complete(held(t, "order:42"))}
		waiter := tokenOf("web-9", 88, driver.KindMutex, 1, "")
		acquire(t, s, "order:42", waiter)
		var audit []Revocation
		h := New(s, Config{Allow: anybody, Revoked: func(_ *http.Request, r Revocation) { audit = append(audit, r) }})
		f := formOf(t, h, "order:42")
		w := f.send(t, h)
		location := w.Header().Get("Location")
		if w.Code != http.StatusSeeOther || !strings.HasPrefix(location, "name?done=revoked.") || !strings.HasSuffix(location, "&n=order%3A42") {
			t.Fatalf("status %d, location %q\n%s", w.Code, location, w.Body)
		}
		wantText(t, body(t, h, location), "The lease was revoked.", "web-9:88")
		if have := holding(t, s, "order:42"); !slices.Equal(have, []string{waiter}) {
			t.Errorf("want the waiter to hold the name, have %q", have)
		}
		if len(s.revoked) != 1 || s.revoked[0].Fence == 0 || s.revoked[0].Token != "" || s.revoked[0].Reason != "host is gone" {
			t.Errorf("requests to the store: %+v", s.revoked)
		}
		if len(audit) != 1 || audit[0].Name != "order:42" || audit[0].Holder != "web-7:211 (cron)" || audit[0].Fence != s.revoked[0].Fence || audit[0].Reason != "host is gone" || audit[0].User != "192.0.2.1:1234" || audit[0].At.IsZero() {
			t.Errorf("audit: %+v", audit)
		}
		wantStatus(t, f.send(t, h), http.StatusConflict, "That lease has ended", `href="name?n=order%3A42"`) // and not the waiter's
		if len(audit) != 1 || len(holding(t, s, "order:42")) != 1 {
			t.Error("the form was used twice")
		}
	})
}

// The message after a revocation should not be shown for somebody else's link, nor for another
// name, nor later.
func TestLinkToAMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := held(t, "a")
		h := New(s, Config{Allow: anybody})
		location := formOf(t, h, "a").send(t, h).Header().Get("Location")
		const message = "The lease was revoked."
		wantText(t, body(t, h, location), message)
		at := fmt.Sprint(time.Now().Unix())
		for _, link := range []string{
			"name?n=a&done=revoked", "name?n=a&done=foreign", "name?n=a&done=revoked." + at + ".", "name?n=a&done=revoked." + at + "." + strings.Repeat("0", 32),
			strings.Replace(location, "n=a", "n=b", 1), strings.Replace(location, "revoked", "foreign", 1),
		} {
			wantNoText(t, body(t, h, link), message, "was ended")
		}
		time.Sleep(doneTime + time.Second)
		wantNoText(t, body(t, h, location), message)
	})
}

// A name's events say that a lease was revoked, by whom and why, and not that it was released.
func TestEventOfARevocation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := New(held(t, "a"), Config{Allow: anybody, User: func(*http.Request) string { return "alice\x1b" }})
		ctx, cancel := context.WithCancel(t.Context())
		_, wait := open(ctx, h, "events?view=list") // the store is polled
		synctest.Wait()
		formOf(t, h, "a").send(t, h)
		time.Sleep(2500 * time.Millisecond)
		page := body(t, h, "name?n=a")
		wantText(t, page, "<b>revoked</b>", `by alice\x1b: host is gone`)
		wantNoText(t, page, "<b>released</b>")
		wantText(t, body(t, h, "api/name?n=a"), `"event":"revoked"`, `"reason":"host is gone"`)
		cancel()
		wait()
	})
}

// If a store has not recorded a young lease's fence, the form contains a hash of its token.
func TestRevokeAYoungLease(t *testing.T) {
	s := &changedStore{Full: driver.Complete(held(t, "a")), change: func(s *driver.State) {
		for i := range s.Holders {
			s.Holders[i].Fence = 0
		}
	}}
	h := New(s, Config{Allow: anybody})
	wantText(t, body(t, h, "name?n=a"), "not known yet")
	f := formOf(t, h, "a")
	token := holding(t, s, "a")[0]
	wantNoText(t, f.action, "secret", "web-7")
	wantStatus(t, f.send(t, h), http.StatusSeeOther)
	if len(s.revoked) != 1 || s.revoked[0].Fence != 0 || s.revoked[0].Token != token {
		t.Errorf("requests to the store: %+v", s.revoked)
	}
	if have := holding(t, s, "a"); len(have) != 0 {
		t.Errorf("held by %q", have)
	}

	acquire(t, s, "a", tokenOf("web-7", 211, driver.KindMutex, 1, "another lease"))
	wantStatus(t, f.send(t, h), http.StatusConflict)
	other := New(s, Config{Allow: anybody})
	wantStatus(t, formOf(t, other, "a").send(t, h), http.StatusForbidden) // another handler's form, with another key
}

// The fence was recorded while the form was open.
func TestRevokeALeaseThatWasYoung(t *testing.T) {
	young := true
	s := &changedStore{Full: driver.Complete(held(t, "a")), change: func(s *driver.State) {
		if young && len(s.Holders) > 0 {
			s.Holders[0].Fence = 0
		}
	}}
	h := New(s, Config{Allow: anybody})
	f := formOf(t, h, "a")
	young = false
	wantStatus(t, f.send(t, h), http.StatusSeeOther)
	if len(s.revoked) != 1 || s.revoked[0].Fence == 0 {
		t.Errorf("requests to the store: %+v", s.revoked)
	}
}

// A reservation after a release is ended in the same way as a lease.
func TestRevokeAReservedName(t *testing.T) {
	s := memstore.New()
	token := tokenOf("web-7", 211, driver.KindOnce, 1, "")
	acquire(t, s, "job", token)
	if ok, err := s.Release(t.Context(), driver.ReleaseRequest{Name: "job", Token: token, Reserve: time.Minute}); !ok || err != nil {
		t.Fatal(ok, err)
	}
	h := New(s, Config{Allow: anybody})
	wantText(t, body(t, h, "name?n=job"), "[reserved]")
	wantStatus(t, formOf(t, h, "job").send(t, h), http.StatusSeeOther)
	if have := holding(t, s, "job"); len(have) != 0 {
		t.Errorf("held by %q", have)
	}
}

func TestRefusedRevocations(t *testing.T) {
	const name = "order:42"
	for what, c := range map[string]struct {
		config Config
		change func(*form)
		status int
		text   string
	}{
		"not allowed":            {Config{Allow: func(r *http.Request) bool { return r.Method == http.MethodGet }}, func(*form) {}, http.StatusForbidden, "read-only"},
		"wrong name":             {Config{}, func(f *form) { f.values.Set("typed", "order:43") }, http.StatusForbidden, "not the name"},
		"no name":                {Config{}, func(f *form) { f.values.Del("typed") }, http.StatusForbidden, "not the name"},
		"another site":           {Config{}, func(f *form) { f.header.Set("Sec-Fetch-Site", "cross-site") }, http.StatusForbidden, "another site"},
		"a sibling site":         {Config{}, func(f *form) { f.header.Set("Sec-Fetch-Site", "same-site") }, http.StatusForbidden, "another site"},
		"another origin":         {Config{}, func(f *form) { f.header = http.Header{"Origin": {"https://evil.example"}} }, http.StatusForbidden, "another site"},
		"no CSRF token":          {Config{}, func(f *form) { f.values.Del("csrf") }, http.StatusForbidden, "too old"},
		"wrong CSRF token":       {Config{}, func(f *form) { f.values.Set("csrf", strings.Repeat("0", 32)) }, http.StatusForbidden, "too old"},
		"no cookie":              {Config{}, func(f *form) { f.cookie = nil }, http.StatusForbidden, "too old"},
		"cookie of another":      {Config{}, func(f *form) { f.cookie.Value = "another" }, http.StatusForbidden, "too old"},
		"CSRF token in the link": {Config{}, func(f *form) { f.action += "&csrf=" + f.values.Get("csrf"); f.values.Del("csrf") }, http.StatusForbidden, "too old"},
		"no reason":              {Config{}, func(f *form) { f.values.Set("reason", " ") }, http.StatusBadRequest, "reason is required"},
		"long reason":            {Config{}, func(f *form) { f.values.Set("reason", strings.Repeat("x", 257)) }, http.StatusBadRequest, "one line"},
		"reason of two lines":    {Config{}, func(f *form) { f.values.Set("reason", "a\nb") }, http.StatusBadRequest, "one line"},
		"large body":             {Config{}, func(f *form) { f.values.Set("reason", strings.Repeat("x", maxBody)) }, http.StatusRequestEntityTooLarge, "too large"},
		"malformed body":         {Config{}, func(f *form) { f.values = nil; f.action += "&%zz" }, http.StatusBadRequest, "could not be read"},
		"another fence":          {Config{}, func(f *form) { f.action = strings.Replace(f.action, "lease=f", "lease=f1", 1) }, http.StatusConflict, "has ended"},
		"no lease":               {Config{}, func(f *form) { f.action = "revoke?n=order:42" }, http.StatusConflict, "has ended"},
		"a guessed hash":         {Config{}, func(f *form) { f.action = "revoke?n=order:42&lease=t" + strings.Repeat("0", 32) }, http.StatusConflict, "has ended"},
		"a guessed foreign lock": {Config{}, func(f *form) { f.action = "revoke?n=order:42&lease=x" + strings.Repeat("0", 32) }, http.StatusConflict, "has ended"},
		"a free name":            {Config{}, func(f *form) { f.action = "revoke?n=free&lease=f1"; f.values.Set("typed", "free") }, http.StatusConflict, "has ended"},
		"a hidden name":          {Config{Glob: "order:*"}, func(f *form) { f.action = "revoke?n=pay&lease=f1"; f.values.Set("typed", "pay") }, http.StatusNotFound, "not shown"},
		"an invalid name":        {Config{}, func(f *form) { f.action = "revoke?n=&lease=f1"; f.values.Set("typed", "") }, http.StatusBadRequest, "empty name"},
		"GET":                    {Config{}, func(f *form) { f.method = http.MethodGet; f.action += "&" + f.values.Encode() }, http.StatusMethodNotAllowed, "POST only"},
		"PUT":                    {Config{}, func(f *form) { f.method = http.MethodPut }, http.StatusMethodNotAllowed, "POST only"},
	} {
		t.Run(what, func(t *testing.T) {
			s := &changedStore{Full: driver.Complete(held(t, name))}
			if c.config.Allow == nil {
				c.config.Allow = anybody
			}
			c.config.Revoked = func(*http.Request, Revocation) { t.Error("Revoked was called") }
			h := New(s, c.config)
			f := formOf(t, h, name)
			c.change(&f)
			w := f.send(t, h)
			wantStatus(t, w, c.status, c.text)
			wantText(t, w.Header().Get("Content-Type"), "text/html")
			if len(s.revoked) > 0 || len(holding(t, s, name)) != 1 {
				t.Errorf("requests to the store: %+v", s.revoked)
			}
		})
	}
}

func TestReadOnly(t *testing.T) {
	s := held(t, "a")
	f := formOf(t, New(s, Config{Allow: anybody}), "a")
	for _, h := range []http.Handler{New(s, Config{}), New(s, Config{Allow: func(*http.Request) bool { return false }})} {
		for _, link := range []string{"name?n=a", "fragment?view=name&n=a"} {
			wantNoText(t, body(t, h, link), "Revoke…", "revoke=", "<form method")
		}
		wantText(t, body(t, h, "name?n=a"), "read-only")
		wantText(t, body(t, h, "name?n=a&revoke=f1"), "read-only for you")
		wantNoText(t, body(t, h, "name?n=a&revoke=f1"), "csrf")
		wantStatus(t, f.send(t, h), http.StatusForbidden, "read-only for you")
	}
}

func TestFormOfAnEndedLease(t *testing.T) {
	h := New(held(t, "a"), Config{Allow: anybody})
	page := body(t, h, "name?n=a&revoke=f1")
	wantText(t, page, "That lease has ended.")
	wantNoText(t, page, "csrf")
}

func TestRevokeWhileTheStoreIsAway(t *testing.T) {
	s := &changedStore{Full: driver.Complete(held(t, "a"))}
	h := New(s, Config{Allow: anybody})
	f := formOf(t, h, "a")
	s.away.Store(true)
	wantStatus(t, f.send(t, h), http.StatusServiceUnavailable, "connection refused")
}

func TestCookie(t *testing.T) {
	h := New(held(t, "a"), Config{Allow: anybody})
	f := formOf(t, h, "a")
	if c := f.cookie; !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || c.Secure || c.Path != "" || len(c.Value) < 20 {
		t.Errorf("cookie %+v", c)
	}
	wantNoText(t, f.values.Get("csrf"), f.cookie.Value)
	if w := get(t, h, "name?n=a"); len(w.Result().Cookies()) != 0 {
		t.Error("a page without a form sets a cookie")
	}
}

// A foreignStore has a foreign lock on the name redisson.
type foreignStore struct {
	*memstore.Store
	owner     string
	removable bool
	ended     []driver.Foreign
	did       string
}

func (s *foreignStore) state() driver.State {
	foreign := driver.Foreign{Key: "lock:redisson", Type: "hash", Kind: "Redisson RLock", Remaining: time.Minute, Lock: true, Advice: "stop the client; or wait"}
	if s.removable {
		foreign.Mark = s.owner
	}
	return driver.State{
		Name: "redisson", Holding: 1, Holders: []driver.Holder{{Token: s.owner, Owner: "client:12", Remaining: time.Minute}}, Foreign: &foreign,
	}
}

func (s *foreignStore) Inspect(context.Context, string) (driver.State, error) {
	return driver.State{}, &driver.WrongTypeError{Op: "inspect", Name: "redisson", State: s.state()}
}

func (s *foreignStore) List(context.Context, string) ([]string, error) {
	return []string{"redisson"}, nil
}

func (s *foreignStore) InspectAll(context.Context, []string) ([]driver.State, error) {
	return []driver.State{s.state()}, nil
}

// A foreignRevoker can end it.
type foreignRevoker struct{ *foreignStore }

func (s foreignRevoker) RevokeForeign(_ context.Context, _ string, seen driver.Foreign) (string, error) {
	s.ended = append(s.ended, seen)
	return s.did, nil
}

func TestRevokeAForeignLock(t *testing.T) {
	s := &foreignStore{Store: memstore.New(), owner: "client-secret:12", removable: true, did: "deleted the key"}
	var audit []Revocation
	h := New(foreignRevoker{s}, Config{Allow: anybody, Revoked: func(_ *http.Request, r Revocation) { audit = append(audit, r) }})
	wantText(t, body(t, h, ""), "Redisson RLock", "client:12", "foreign</span> <b>1</b>")
	wantText(t, body(t, h, "name?n=redisson"), "is held by a foreign lock: Redisson RLock", "stop the client", "End the foreign lock")
	f := formOf(t, h, "redisson")
	wantNoText(t, f.action, "secret")

	f.values.Set("typed", "x")
	wantStatus(t, f.send(t, h), http.StatusForbidden)
	f.values.Set("typed", "redisson")
	w := f.send(t, h)
	wantStatus(t, w, http.StatusSeeOther)
	wantText(t, body(t, h, w.Header().Get("Location")), "The foreign lock was ended.")
	if len(s.ended) != 1 || s.ended[0].Key != "lock:redisson" || len(audit) != 1 || audit[0].Did != "deleted the key" || audit[0].Holder != "client:12" {
		t.Errorf("ended %+v, audit %+v", s.ended, audit)
	}
	wantText(t, body(t, h, "metrics"), `dibs_lost_total{class="redisson",reason="revoked"} 0`) // it was no lease

	s.did = "" // it changed in the meantime
	wantStatus(t, f.send(t, h), http.StatusConflict)
	s.owner, s.did = "another:1", "deleted the key"
	wantStatus(t, f.send(t, h), http.StatusConflict)
	if len(s.ended) != 2 || len(audit) != 1 {
		t.Errorf("ended %+v, audit %+v", s.ended, audit)
	}
}

// Without a ForeignRevoker, or if the lock is not removable, there is no form.
func TestForeignLockThatIsNotEnded(t *testing.T) {
	s := &foreignStore{Store: memstore.New(), owner: "client-secret:12", removable: true, did: "deleted the key"}
	able := New(foreignRevoker{s}, Config{Allow: anybody})
	f := formOf(t, able, "redisson")
	unable := New(s, Config{Allow: anybody})
	wantNoText(t, body(t, unable, "name?n=redisson"), "End the foreign lock")
	s.removable = false
	wantNoText(t, body(t, able, "name?n=redisson"), "End the foreign lock")
	wantStatus(t, f.send(t, able), http.StatusConflict)
	if len(s.ended) > 0 {
		t.Errorf("ended %+v", s.ended)
	}
}

// A value without expiry that dibs did not write may be data.
func TestValueThatNeverExpires(t *testing.T) {
	s := &changedStore{Full: driver.Complete(held(t, "a")), change: func(s *driver.State) {
		if len(s.Holders) > 0 {
			s.Holders[0] = driver.Holder{Token: "some value", Remaining: -1, Fence: 7}
		}
	}}
	h := New(s, Config{Allow: anybody})
	page := body(t, h, "name?n=a")
	wantText(t, page, "never")
	wantNoText(t, page, "Revoke…")
	wantText(t, body(t, h, "name?n=a&revoke=f7"), "That lease has ended.")
	wantText(t, body(t, h, ""), "never expires</span> <b>1</b>")
}

// The marks for leases do not find a foreign lock.
func TestMarkOfAForeignLock(t *testing.T) {
	s := &foreignStore{Store: memstore.New(), owner: "client-secret:12", removable: true}
	h := New(foreignRevoker{s}, Config{}).handler
	state := s.state()
	state.Holders[0].Fence = 7
	for _, mark := range []string{h.leaseMark(state.Holders[0]), tokenMark + h.secrets.lease(state.Holders[0])} {
		if _, found := h.find(state, mark); found {
			t.Errorf("mark %s", mark)
		}
	}
	if _, found := h.find(state, foreignMark+h.secrets.foreign(state)); !found {
		t.Error("the mark of the foreign lock finds nothing")
	}
}
