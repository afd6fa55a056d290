package dashboard

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/dibslock/dibs/dashboard/view"
	"github.com/dibslock/dibs/driver"
)

// A mark says which lease a form is about: by its fence, or, if the store does not have it, by its
// token's keyed hash. A foreign lock's mark is also a hash.
const (
	fenceMark   = "f"
	tokenMark   = "t"
	foreignMark = "x"
)

func (h *handler) leaseMark(holder driver.Holder) string {
	if holder.Fence != 0 {
		return fenceMark + strconv.FormatUint(holder.Fence, 10)
	}
	return tokenMark + h.secrets.lease(holder)
}

// revocable reports whether a holder is a lease. A value of another program that never
// expires may be data.
func revocable(h driver.Holder) bool { return !h.NeverExpires() || view.OwnerOf(h.Token).Host != "" }

func revokeLink(name, mark string) string {
	return "name?" + url.Values{"n": {name}, "revoke": {mark}}.Encode()
}

// A target is the lease or lock that a form or a request revokes.
type target struct {
	name    string
	holder  driver.Holder // for a foreign lock: the first owner, if there is one
	foreign *driver.Foreign
}

// find returns the lease, or the foreign lock, for a mark in a state. It returns false if the state
// no longer contains it.
func (h *handler) find(state driver.State, mark string) (target, bool) {
	t := target{name: state.Name}
	if hash, ok := strings.CutPrefix(mark, foreignMark); ok {
		if state.Foreign == nil || !state.Foreign.Removable() || !equal(hash, h.secrets.foreign(state)) {
			return t, false
		}
		t.foreign = state.Foreign
		if len(state.Holders) > 0 {
			t.holder = state.Holders[0]
		}
		return t, true
	}
	if state.Foreign != nil {
		return t, false
	}
	for _, holder := range state.Holders {
		byToken := equal(mark, tokenMark+h.secrets.lease(holder))
		byFence := holder.Fence != 0 && mark == fenceMark+strconv.FormatUint(holder.Fence, 10)
		if (byToken || byFence) && revocable(holder) {
			t.holder = holder
			return t, true
		}
	}
	return t, false
}

// end ends the lease or the foreign lock, and no other. It returns false if it ended meanwhile. did
// is how a foreign lock was ended.
func (h *handler) end(ctx context.Context, t target, reason string) (did string, done bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, h.config.Timeout)
	defer cancel()
	if t.foreign == nil {
		r := driver.RevokeRequest{Name: t.name, Fence: t.holder.Fence, Reason: reason}
		if r.Fence == 0 {
			r.Token = t.holder.Token
		}
		done, err = h.store.Revoke(ctx, r)
		return "", done, err
	}
	did, err = h.store.RevokeForeign(ctx, t.name, *t.foreign)
	return did, did != "", err
}

// A revokeForm asks for the name and the reason.
type revokeForm struct {
	Action    string // the link that the form is sent to
	Cancel    string
	CSRF      string
	Name      string // the text to be typed
	What      string // the thing to revoke
	Holder    string
	Fence     string
	Foreign   bool
	Key       string // for a foreign lock
	MaxReason int
	MaxTyped  int
}

func (h *handler) revokeFormOf(t target, mark, csrf string, at time.Time) *revokeForm {
	const longestName = 16 * driver.MaxName // as text with escaped characters
	shown := view.HolderOf(t.holder, at)
	f := &revokeForm{
		Action: "revoke?" + url.Values{"n": {t.name}, "lease": {mark}}.Encode(), Cancel: nameLink(t.name),
		CSRF: csrf, Name: view.Safe(t.name), Holder: shown.String(), Fence: fenceText(t.holder.Fence, t.foreign != nil),
		MaxReason: driver.MaxReason, MaxTyped: longestName,
	}
	if t.foreign != nil {
		f.Foreign, f.Key = true, view.Safe(t.foreign.Key)
	}
	return f
}

// A refusal is the reason why a request to revoke has no effect.
type refusal struct {
	status int
	title  string
	text   string
}

func (r refusal) Error() string { return r.text }

const (
	maxBody = 16 << 10 // for a request to revoke

	titleRefused = "Nothing was revoked"
)

// revoke handles the form. It changes nothing unless each check succeeds.
func (h *handler) revoke(w http.ResponseWriter, r *http.Request) {
	name, revocation, err := h.tryRevoke(w, r)
	if err != nil {
		h.refuse(w, r, name, err)
		return
	}
	h.hub.Revoked(revocation.change())
	if revocation.Did == "" { // a foreign lock is no lease
		h.metrics.addRevocation(name)
	}
	if h.config.Revoked != nil {
		h.config.Revoked(r, revocation)
	}
	// The location is relative, because the dashboard's prefix is unknown.
	w.Header().Set("Location", "name?"+url.Values{"n": {name}, "done": {h.doneMark(revocation)}}.Encode())
	w.WriteHeader(http.StatusSeeOther)
}

// change returns the revocation as an event for its name.
func (r Revocation) change() view.Change {
	return view.Change{Time: r.At, Name: r.Name, Holder: &r.ended, User: r.User, Reason: r.Reason}
}

// The words in a link to the page after a revocation. doneTime is how long the link shows the
// message.
const (
	doneLease   = "revoked"
	doneForeign = "foreign"
	doneTime    = time.Minute
)

// doneMark returns the mark for the page after a revocation: a word, the time, and their keyed
// hash. So somebody else's link does not show the message.
func (h *handler) doneMark(r Revocation) string {
	word := doneLease
	if r.Did != "" {
		word = doneForeign
	}
	at := strconv.FormatInt(r.At.Unix(), 10)
	return word + "." + at + "." + h.secrets.hash("done", r.Name, word, at)
}

// doneNotes returns the message after a name's revocation.
func (h *handler) doneNotes(name, mark string) []note {
	parts := strings.Split(mark, ".")
	const fields = 3
	if len(parts) != fields || !equal(parts[2], h.secrets.hash("done", name, parts[0], parts[1])) {
		return nil
	}
	at, err := strconv.ParseInt(parts[1], 10, 64)
	if err != nil || time.Since(time.Unix(at, 0)) > doneTime {
		return nil
	}
	if parts[0] == doneForeign {
		return []note{{"good", "The foreign lock was ended. The work of its holder may go on."}}
	}
	return []note{{"good", "The lease was revoked. The work of its holder may go on until the holder notices."}}
}

func (h *handler) tryRevoke(w http.ResponseWriter, r *http.Request) (name string, done Revocation, err error) {
	if err := h.permitted(w, r); err != nil {
		return "", done, err
	}
	name = r.URL.Query().Get("n")
	if err := h.checkName(name); err != nil {
		return "", done, err
	}
	reason, err := h.confirmed(r, name)
	if err != nil {
		return name, done, err
	}
	state, err := h.inspect(r.Context(), name)
	if err != nil {
		return name, done, err
	}
	t, found := h.find(state, r.URL.Query().Get("lease"))
	if !found {
		return name, done, errEnded
	}
	// A browser that goes away should not stop a revocation halfway.
	did, ended, err := h.end(context.WithoutCancel(r.Context()), t, reason)
	if err != nil {
		return name, done, err
	}
	if !ended {
		return name, done, errEnded
	}
	now := time.Now()
	holder := view.HolderOf(t.holder, now)
	return name, Revocation{
		Name: name, Holder: holder.String(), Fence: t.holder.Fence, User: h.config.User(r), Reason: reason, Did: did, At: now, ended: holder,
	}, nil
}

var errEnded = refusal{http.StatusConflict, titleRefused, "That lease has ended. Another one may hold the name by now."}

// permitted checks a request's sender: the program allows it, and it comes from this dashboard's
// form in the same browser.
func (h *handler) permitted(w http.ResponseWriter, r *http.Request) error {
	if err := h.origin.Check(r); err != nil {
		return refusal{http.StatusForbidden, titleRefused, "The request came from another site."}
	}
	if !h.config.allows(r) {
		return refusal{http.StatusForbidden, titleRefused, "This dashboard is read-only for you."}
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxBody)
	if err := r.ParseForm(); err != nil {
		var large *http.MaxBytesError
		if errors.As(err, &large) {
			return refusal{http.StatusRequestEntityTooLarge, titleRefused, "The request is too large."}
		}
		return refusal{http.StatusBadRequest, titleRefused, "The form could not be read."}
	}
	if !h.secrets.sameSession(r, r.PostForm.Get("csrf")) {
		return refusal{http.StatusForbidden, titleRefused, "The form is too old, or cookies are blocked. Open it again."}
	}
	return nil
}

// confirmed checks the typed text, and returns the reason. A name with control characters is typed
// as it is shown.
func (h *handler) confirmed(r *http.Request, name string) (reason string, err error) {
	if typed := r.PostForm.Get("typed"); typed != name && typed != view.Safe(name) {
		return "", refusal{http.StatusForbidden, titleRefused, "The typed name is not the name of the lock."}
	}
	reason = strings.TrimSpace(r.PostForm.Get("reason"))
	if reason == "" {
		return "", refusal{http.StatusBadRequest, titleRefused, "A reason is required."}
	}
	if err := driver.CheckRevoke(driver.RevokeRequest{Name: name, Fence: 1, Reason: reason}); err != nil {
		return "", refusal{http.StatusBadRequest, titleRefused, fmt.Sprintf("The reason must be one line of at most %d bytes, without control characters.", driver.MaxReason)}
	}
	return reason, nil
}
