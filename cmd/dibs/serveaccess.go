package main

import (
	"crypto/rand"
	"crypto/subtle"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// A serveKey is the secret for a run of serve --revoke. It is part of the printed URL. A browser
// that opens this URL gets a cookie with the key, and can revoke.
type serveKey string

// newServeKey returns a random 130-bit key.
func newServeKey() serveKey { return serveKey(rand.Text()) }

const keyParameter = "key"

// cookieOf returns the cookie's name for a host with a port: browsers send a cookie to all ports on
// a host.
func cookieOf(hostPort string) string {
	return "dibs-key-" + (&url.URL{Host: hostPort}).Port()
}

func (k serveKey) is(text string) bool {
	return subtle.ConstantTimeCompare([]byte(k), []byte(text)) == 1
}

// allows reports whether a request has the cookie with the key.
func (k serveKey) allows(r *http.Request) bool {
	c, err := r.Cookie(cookieOf(r.Host))
	return err == nil && k.is(c.Value)
}

// exchange turns a URL's key into the cookie, and redirects to the URL without it. So the key is
// not in the address bar, nor in bookmarks.
func (k serveKey) exchange(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		values := r.URL.Query()
		switch {
		case !values.Has(keyParameter):
			next.ServeHTTP(w, r)
			return
		case !k.is(values.Get(keyParameter)):
			http.Error(w, "this is not the key of this dibs serve; use the URL that it has printed", http.StatusForbidden)
			return
		}
		values.Del(keyParameter)
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("Referrer-Policy", "no-referrer")
		http.SetCookie(w, &http.Cookie{
			Name: cookieOf(r.Host), Value: string(k), HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: r.TLS != nil,
		})
		w.Header().Set("Location", withoutPath(r.URL, values))
		w.WriteHeader(http.StatusSeeOther)
	})
}

// withoutPath returns a link to the same page with other values. It is relative, because a proxy
// may have removed a part of the path.
func withoutPath(u *url.URL, values url.Values) string {
	path := u.EscapedPath()
	link := "./" + path[strings.LastIndexByte(path, '/')+1:]
	if len(values) > 0 {
		link += "?" + values.Encode()
	}
	return link
}

// onlyHosts rejects requests for other hosts than this host and those in allowed. Otherwise a page
// on another site could read the locks: its own host name can resolve to this host.
func onlyHosts(allowed []string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := (&url.URL{Host: r.Host}).Hostname()
		same := func(other string) bool { return strings.EqualFold(host, other) }
		if !isLocalName(host) && !slices.ContainsFunc(allowed, same) {
			http.Error(w, "use the address 127.0.0.1, [::1] or localhost, or start dibs serve with --allow-host", http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func isLocalName(host string) bool {
	if host == "localhost" {
		return true
	}
	at, err := netip.ParseAddr(host)
	return err == nil && at.Unmap().IsLoopback()
}

// checkHosts returns an error for an --allow-host value that no request can have.
func checkHosts(hosts []string) error {
	for _, host := range hosts {
		_, notAddress := netip.ParseAddr(host)
		if host == "" || notAddress != nil && strings.ContainsAny(host, ":/@?# []*") {
			return usage("--allow-host %q: want a host name or an address, without scheme and port", host)
		}
	}
	return nil
}
