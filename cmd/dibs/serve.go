package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/user"
	"strconv"
	"time"

	"github.com/dibslock/dibs/checkup"
	"github.com/dibslock/dibs/dashboard"
	"github.com/dibslock/dibs/dashboard/view"
	"github.com/spf13/cobra"
)

// A serveRequest is serve's command line.
type serveRequest struct {
	glob   string
	listen string
	every  durationFlag
	revoke bool
	hosts  []string // --allow-host
	key    serveKey // for --revoke; otherwise empty
}

func serveCmd(a *app) *cobra.Command {
	var q serveRequest
	c := &cobra.Command{
		Use:   "serve [GLOB]",
		Short: "Show the locks in a browser",
		Long: `Show the locks on web pages that are updated continuously: holders, waiters,
wait queues, processes, which process waits for which, and findings of doctor.
GLOB is as in "dibs ls".

There is no login. By default only this host can connect. For others, use
ssh -L, or put a proxy that authenticates in front: --allow-host is its name.

With --revoke, the pages can revoke leases in a browser that has opened the
printed URL. It contains a random key: whoever reads it can revoke. The other
browsers can only read. --revoke needs a loopback address.

/metrics has figures for Prometheus. The store is polled continuously for them
and for the history: if it has many names, every 10 s while nobody watches. It
runs until a signal ends it.

Exit codes: 130 or 143 ended by a signal; 64 invalid command line; 125 the
address cannot be used.`,
		Example: `  dibs serve
  dibs serve 'order:*' --listen 127.0.0.1:8000 --revoke
  dibs serve --allow-host locks.example.com
  ssh -L 7007:127.0.0.1:7007 ops@web-1 dibs serve`,
		Args:              argCount(0, 1),
		ValidArgsFunction: a.stores.completeName,
		RunE: func(_ *cobra.Command, args []string) error {
			if err := q.every.check(); err != nil {
				return err
			}
			if err := checkHosts(q.hosts); err != nil {
				return err
			}
			q.glob = globOf(args)
			return a.withStore(func(ctx context.Context, s *opened) error { return q.serve(ctx, a.con, s) })
		},
	}
	c.Flags().StringVar(&q.listen, "listen", "127.0.0.1:7007", "address to listen on; port 0 chooses one")
	c.Flags().BoolVar(&q.revoke, "revoke", false, "let the pages revoke leases (default: read only)")
	c.Flags().StringArrayVar(&q.hosts, "allow-host", nil, "host name of a proxy in front, as browsers send it; repeatable")
	q.every = durationFlag(time.Second)
	c.Flags().Var(&q.every, "every", "pause between two polls of the store")
	return c
}

// serve serves the dashboard until ctx ends.
func (q serveRequest) serve(ctx context.Context, con *console, s *opened) error {
	listener, err := q.open(ctx)
	if err != nil {
		return err
	}
	at := listener.Addr().String()
	local := isLoopback(at)
	if q.revoke && !local {
		_ = listener.Close()
		return usage("--revoke needs a loopback address, because the connection is not encrypted: --listen 127.0.0.1:7007")
	}
	address := "http://" + at + "/"
	if q.revoke {
		q.key = newServeKey()
		address += "?" + keyParameter + "=" + string(q.key)
	}
	handler := q.handler(ctx, con, s, local)
	if !local {
		con.logf("everybody who can reach %s can see the names and the holders of all locks", at)
	}
	con.logf("the locks of %s are on %s", s.location, address)
	con.event(view.ServingEvent{Stamp: stamp("serving"), Store: s.location, URL: address})
	return serveUntil(ctx, listener, handler)
}

// handler returns the dashboard behind the key and host checks. It records until ctx ends.
func (q serveRequest) handler(ctx context.Context, con *console, s *opened, local bool) http.Handler {
	board := dashboard.New(s.Store, q.config(con, s))
	go board.Record(ctx)
	handler := http.Handler(board)
	if q.revoke {
		handler = q.key.exchange(handler)
	}
	if local || len(q.hosts) > 0 {
		handler = onlyHosts(q.hosts, handler)
	}
	return handler
}

func (q serveRequest) open(ctx context.Context) (net.Listener, error) {
	if _, _, err := net.SplitHostPort(q.listen); err != nil {
		return nil, usage("--listen %q: want HOST:PORT", q.listen)
	}
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", q.listen)
	if err != nil {
		return nil, fmt.Errorf("serve: %w", err)
	}
	return listener, nil
}

func (q serveRequest) config(con *console, s *opened) dashboard.Config {
	return dashboard.Config{
		Title: s.location, Glob: q.glob, Every: time.Duration(q.every), Timeout: s.timeout,
		Allow:  func(r *http.Request) bool { return q.revoke && q.key.allows(r) },
		Doctor: func(ctx context.Context) (checkup.Findings, error) { return findings(ctx, s) },
		User:   func(r *http.Request) string { return userName() + " from " + r.RemoteAddr },
		Revoked: func(_ *http.Request, r dashboard.Revocation) {
			con.logf("%s: revoked the lease of %s, by %s, reason: %s", view.Safe(r.Name), r.Holder, view.Safe(r.User), view.Safe(r.Reason))
			con.event(view.RevokedEvent{Stamp: stamp("revoked"), Name: r.Name, Holder: r.Holder, Fence: r.Fence, User: r.User, Reason: r.Reason})
		},
	}
}

// userName returns this process's user.
func userName() string {
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return "user " + strconv.Itoa(os.Getuid())
}

// findings returns doctor's findings on all nodes.
func findings(ctx context.Context, s *opened) (all checkup.Findings, err error) {
	for _, n := range examine(ctx, s) {
		if !n.Reached {
			err = errors.Join(err, fmt.Errorf("%s: %s", n.URL, n.Error))
		}
		for _, f := range n.found {
			if f.Node == "" && len(s.nodes) > 1 {
				f.Node = n.URL
			}
			all = append(all, f)
		}
	}
	return all, err
}

// The time limits for a connection. A page waits for the store and the doctor, 20 s at most, before
// it is written. A page's stream extends the limits for each event.
const (
	headerTime = 5 * time.Second
	readTime   = 15 * time.Second // for a request with its body
	writeTime  = 40 * time.Second // from the header's end to the answer's end
	idleTime   = 2 * time.Minute
)

// serveUntil serves requests until ctx ends. Requests that follow the store also end then.
func serveUntil(ctx context.Context, listener net.Listener, handler http.Handler) error {
	const endTime = 3 * time.Second
	server := &http.Server{
		Handler: handler, ReadHeaderTimeout: headerTime, ReadTimeout: readTime, WriteTimeout: writeTime, IdleTimeout: idleTime,
		MaxHeaderBytes: 64 << 10,
		BaseContext:    func(net.Listener) context.Context { return ctx },
	}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	select {
	case err := <-failed:
		return fmt.Errorf("serve: %w", err)
	case <-ctx.Done():
	}
	within, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTime)
	defer cancel()
	if server.Shutdown(within) != nil {
		_ = server.Close() // some requests do not end
	}
	return nil
}

// isLoopback reports whether only this host can connect to an address.
func isLoopback(address string) bool {
	at, err := netip.ParseAddrPort(address)
	return err == nil && at.Addr().Unmap().IsLoopback()
}
