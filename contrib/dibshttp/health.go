package dibshttp

import (
	"context"
	"net/http"
)

// Health returns a handler for readiness probes. It answers GET and HEAD with 200 if check
// returns nil, and with 503 otherwise:
//
//	mux.Handle("GET /ready", dibshttp.Health(locks.Check))
//
// dibs.Client.Check takes at most the Client's operation timeout, by default 1 s, so the probe
// needs a longer timeout. The check's context ends early if the HTTP client disconnects. The body
// does not contain the error's text, because the text may name servers and users. Log the error in
// check.
//
// Use this handler only for readiness, and only if the service cannot work without locks. Never use
// it for liveness: a restart does not repair the lock store, but it ends the process's leases. Each
// probe sends a request to the store, so the handler should be on an internal port. Health panics
// if check is nil.
func Health(check func(ctx context.Context) error) http.Handler {
	if check == nil {
		panic("dibshttp: Health: nil function")
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, http.StatusText(http.StatusMethodNotAllowed), http.StatusMethodNotAllowed)
			return
		}
		if err := check(r.Context()); err != nil {
			(&Error{Status: http.StatusServiceUnavailable, Message: "not ready", Err: err}).Write(w)
			return
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("Cache-Control", "no-store")
		_, _ = w.Write([]byte("ready\n")) // fails only if the client is gone
	})
}
