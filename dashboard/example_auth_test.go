package dashboard_test

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/dibslock/dibs/dashboard"
	"github.com/dibslock/dibs/memstore"
)

// An operator has a password. This program knows nothing else about users.
type operator struct{ name, password string }

// is reports whether a request comes from the operator.
func (o operator) is(r *http.Request) bool {
	name, password, ok := r.BasicAuth()
	same := func(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }
	return ok && same(name, o.name) && same(password, o.password)
}

// protect requires a password for each page.
func protect(next http.Handler, users ...operator) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, user := range users {
			if user.is(r) {
				next.ServeHTTP(w, r)
				return
			}
		}
		w.Header().Set("WWW-Authenticate", `Basic realm="locks"`)
		http.Error(w, "a password is required", http.StatusUnauthorized)
	})
}

// A server with a dashboard that everybody with a password can read. Only ops can revoke. The open
// pages' streams end with the server's context, so that Shutdown returns.
func Example_authentication() {
	ops, guest := operator{"ops", "correct horse"}, operator{"guest", "battery staple"}
	board := dashboard.New(memstore.New(), dashboard.Config{
		Allow: ops.is,
		Revoked: func(r *http.Request, done dashboard.Revocation) {
			user, _, _ := r.BasicAuth()
			fmt.Printf("%s revoked %q of %s: %s\n", user, done.Name, done.Holder, done.Reason)
		},
	})
	mux := http.NewServeMux()
	mux.Handle("/locks/", http.StripPrefix("/locks", protect(board, ops, guest)))

	serving, stop := context.WithCancel(context.Background())
	defer stop()
	server := &http.Server{
		Handler: mux, ReadHeaderTimeout: 5 * time.Second,
		BaseContext: func(net.Listener) context.Context { return serving },
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()

	answer, err := http.Get("http://" + listener.Addr().String() + "/locks/")
	if err != nil {
		fmt.Println(err)
		return
	}
	answer.Body.Close()
	fmt.Println(answer.Status)

	stop() // ends the streams
	fmt.Println(server.Shutdown(context.Background()), errors.Is(<-ended, http.ErrServerClosed))
	// Output:
	// 401 Unauthorized
	// <nil> true
}
