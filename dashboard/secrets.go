package dashboard

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"net/http"

	"github.com/dibslock/dibs/driver"
)

// secrets makes keyed hashes. A page contains a token's hash, and never the token: whoever has a
// token can release the lease.
type secrets struct{ key [32]byte }

func newSecrets() (s secrets) {
	rand.Read(s.key[:]) // never fails
	return s
}

// hash returns a keyed hash for some texts and a single purpose.
func (s secrets) hash(purpose string, texts ...string) string {
	const length = 16
	h := hmac.New(sha256.New, s.key[:])
	for _, text := range append([]string{purpose}, texts...) {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(text))))
		h.Write([]byte(text))
	}
	return hex.EncodeToString(h.Sum(nil)[:length])
}

// lease returns a lease's hash, from its token.
func (s secrets) lease(h driver.Holder) string { return s.hash("lease", h.Token) }

// foreign returns a foreign lock's hash, from its key and its owners.
func (s secrets) foreign(state driver.State) string {
	texts := []string{state.Foreign.Key, state.Foreign.Type, state.Foreign.Kind}
	for _, h := range state.Holders {
		texts = append(texts, h.Token)
	}
	return s.hash("foreign", texts...)
}

const cookieName = "dibs-dashboard"

// session returns the CSRF token for a request's browser, and sets its cookie if it is missing.
// Another site can neither read the cookie nor compute the token.
func (s secrets) session(w http.ResponseWriter, r *http.Request) (token string) {
	if c, err := r.Cookie(cookieName); err == nil && c.Value != "" {
		return s.hash("csrf", c.Value)
	}
	// Without a path, the browser only sends the cookie to this page's directory.
	c := &http.Cookie{Name: cookieName, Value: rand.Text(), HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: r.TLS != nil}
	http.SetCookie(w, c)
	return s.hash("csrf", c.Value)
}

// sameSession reports whether a token belongs to a request's browser.
func (s secrets) sameSession(r *http.Request, token string) bool {
	c, err := r.Cookie(cookieName)
	return err == nil && c.Value != "" && equal(token, s.hash("csrf", c.Value))
}

// equal compares two hashes in constant time.
func equal(a, b string) bool { return hmac.Equal([]byte(a), []byte(b)) }
