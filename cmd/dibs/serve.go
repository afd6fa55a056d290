//go:build !noserve

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"time"

	"github.com/dibslock/dibs/dashboard"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/view"
	"github.com/spf13/cobra"
)

// A serveRequest is the command line of serve.
type serveRequest struct {
	glob   string
	listen string
	every  durationFlag
	revoke bool
}

// pageCmds returns the subcommands that serve a page. The build tag noserve leaves them out: the
// templates of the page make the program 10 MB larger.
func pageCmds(a *app) []*cobra.Command { return []*cobra.Command{serveCmd(a)} }

func serveCmd(a *app) *cobra.Command {
	var q serveRequest
	c := &cobra.Command{
		Use:   "serve [GLOB]",
		Short: "Show the locks in a browser",
		Long: `Show the locks on web pages that are updated continuously: holders, waiters,
wait queues, processes, which process waits for which, and findings of doctor.
GLOB is as in "dibs ls".

There is no login. By default only this host can connect. For others, put a
proxy that authenticates in front, or use ssh -L. With --revoke, the pages can
revoke leases; that needs a loopback address.

The store is polled only while somebody watches. It runs until a signal ends it.

Exit codes: 130 or 143 ended by a signal; 64 invalid command line; 125 the
address cannot be used.`,
		Example: `  dibs serve
  dibs serve 'order:*' --listen 127.0.0.1:8000 --revoke
  ssh -L 7007:127.0.0.1:7007 ops@web-1 dibs serve`,
		Args:              argCount(0, 1),
		ValidArgsFunction: a.stores.completeName,
		RunE: func(_ *cobra.Command, args []string) error {
			if err := q.every.check(); err != nil {
				return err
			}
			q.glob = globOf(args)
			return a.withStore(func(ctx context.Context, s *opened) error { return q.serve(ctx, a.con, s) })
		},
	}
	c.Flags().StringVar(&q.listen, "listen", "127.0.0.1:7007", "address to listen on; port 0 chooses one")
	c.Flags().BoolVar(&q.revoke, "revoke", false, "let the pages revoke leases (default: read only)")
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
		return usage("--revoke needs a loopback address, because there is no login: --listen 127.0.0.1:7007")
	}
	handler := dashboard.New(s.Store, q.config(con, s))
	if local {
		handler = onlyLocalNames(handler)
	} else {
		con.logf("everybody who can reach %s can see the names and the holders of all locks", at)
	}
	con.logf("the locks of %s are on http://%s/", s.location, at)
	con.event(view.ServingEvent{Stamp: stamp("serving"), Store: s.location, URL: "http://" + at + "/"})
	return serveUntil(ctx, listener, handler)
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
		Allow:  func(*http.Request) bool { return q.revoke },
		Doctor: func(ctx context.Context) (driver.Findings, error) { return findings(ctx, s) },
		Revoked: func(_ *http.Request, r dashboard.Revocation) {
			con.logf("%s: revoked the lease of %s, reason: %s", view.Safe(r.Name), r.Holder, view.Safe(r.Reason))
			con.event(view.RevokedEvent{Stamp: stamp("revoked"), Name: r.Name, Holder: r.Holder, Fence: r.Fence, Reason: r.Reason})
		},
	}
}

// findings returns what doctor finds on all nodes.
func findings(ctx context.Context, s *opened) (all driver.Findings, err error) {
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

// serveUntil serves requests until ctx ends. Requests that follow the store end then, too.
func serveUntil(ctx context.Context, listener net.Listener, handler http.Handler) error {
	const (
		headerTime = 5 * time.Second
		idleTime   = 2 * time.Minute
		endTime    = 3 * time.Second
	)
	server := &http.Server{
		Handler: handler, ReadHeaderTimeout: headerTime, IdleTimeout: idleTime, MaxHeaderBytes: 64 << 10,
		BaseContext: func(net.Listener) context.Context { return ctx },
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

// onlyLocalNames rejects requests for another host. A page of another site could otherwise
// read the locks: its own host name may resolve to this host.
func onlyLocalNames(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !isLocalName(r.Host) {
			http.Error(w, "use the address 127.0.0.1, [::1] or localhost", http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func isLocalName(hostPort string) bool {
	host := (&url.URL{Host: hostPort}).Hostname()
	if host == "localhost" {
		return true
	}
	at, err := netip.ParseAddr(host)
	return err == nil && at.Unmap().IsLoopback()
}
