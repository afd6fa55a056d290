package pagetest

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/dashboard"
)

// When an operator revokes a lease, the holder receives the reason. A wrong name revokes nothing.
func TestRevoke(t *testing.T) {
	for what, l := range map[string]look{"with scripts": {}, "without scripts": {noScript: true}} {
		t.Run(what, func(t *testing.T) {
			var audited atomic.Pointer[dashboard.Revocation]
			s := serve(t, dashboard.Config{Allow: always, Revoked: func(_ *http.Request, r dashboard.Revocation) { audited.Store(&r) }})
			lease := s.hold(t, "order:42")
			p := open(t, s.Server, "/", l)
			p.click("tr[data-row] a")
			p.eventually("the page of the name", `document.querySelector("a.action")`)
			p.click("a.action")
			p.eventually("the form", `document.querySelector("#revoke")`)
			p.enter("#typed", "order:43")
			p.enter("#reason", "host is gone")
			p.click("button.danger")
			p.eventually("the refusal", `document.querySelector(".note.bad")`)
			if lease.Err() != nil {
				t.Fatalf("a wrong name has ended the lease: %v", lease.Err())
			}

			p.visit("/name?n=order:42")
			p.click("a.action")
			p.eventually("the form", `document.querySelector("#revoke")`)
			p.enter("#typed", "order:42")
			p.enter("#reason", "host is gone")
			p.click("button.danger")
			<-lease.Context().Done()
			var lost *dibs.LostError
			if err := context.Cause(lease.Context()); !errors.As(err, &lost) || lost.Reason != dibs.ReasonRevoked || !strings.Contains(lost.Message, "host is gone") {
				t.Errorf("the lease has ended with %v", err)
			}
			p.eventually("the result", `document.querySelector(".note") && !document.querySelector("#revoke") && document.body.innerText.includes("revoked")`)
			if r := audited.Load(); r == nil || r.Name != "order:42" || r.Reason != "host is gone" || r.Fence != lease.Fence() {
				t.Errorf("audited %+v", r)
			}
		})
	}
}

// A read-only dashboard should have no form, and should refuse a forged form.
func TestReadOnly(t *testing.T) {
	s := serve(t, dashboard.Config{})
	lease := s.hold(t, "order:42")
	p := open(t, s.Server, "/name?n=order:42", look{})
	p.live()
	if eval[bool](p, `Boolean(document.querySelector("form[method=post], a.action"))`) {
		t.Error("a read-only page has a form to revoke")
	}
	status := eval[int](p, `(() => { const r = new XMLHttpRequest(); r.open("POST", "revoke?n=order:42", false);
		r.setRequestHeader("Content-Type", "application/x-www-form-urlencoded");
		r.send("typed=order:42&reason=x&fence=1"); return r.status })()`)
	if status != http.StatusForbidden || lease.Err() != nil {
		t.Errorf("status %d, lease %v: want 403", status, lease.Err())
	}
}

// A page on another site should not be able to revoke, whatever it knows.
func TestOtherSiteCannotRevoke(t *testing.T) {
	s := serve(t, dashboard.Config{Allow: always})
	lease := s.hold(t, "order:42")
	p := open(t, s.Server, "/name?n=order:42", look{})
	p.click("a.action") // the dashboard's cookie is set
	p.eventually("the form", `document.querySelector("#revoke")`)
	action := eval[string](p, `document.querySelector("#revoke form").action`)
	csrf := eval[string](p, `document.querySelector("#revoke [name=csrf]").value`)

	evil := httptest.NewServer(postFrom(action, map[string]string{"csrf": csrf, "typed": "order:42", "reason": "evil"}))
	defer evil.Close()
	// Another port on the same host is another origin, and the same site: the cookie is sent.
	p.do(chromedp.Navigate(evil.URL))
	p.click("button")
	p.eventually("the refusal", `document.readyState === "complete" && location.pathname === `+quoted(pathOf(t, action)))
	if text, _ := p.text(); lease.Err() != nil || !strings.Contains(text, "another site") {
		t.Errorf("lease %v:\n%s", lease.Err(), text)
	}
}

func pathOf(t *testing.T, raw string) string {
	t.Helper()
	u, err := url.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	return u.Path
}

func quoted(text string) string { return `"` + text + `"` }
