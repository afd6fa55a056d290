package etcdtest

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"

	"github.com/dibslock/dibs/internal/test/redistest"
)

// A network forwards the requests between members, and can drop those between two of them.
//
// The URL of a member is the same for all members, so it does not identify the sender. But etcd
// uses the HTTP proxy of its environment, except for loopback addresses. So each member has its own
// HTTP proxy, and the URLs have addresses that no machine uses (RFC 5737). Behind it, each recipient
// has a TCP proxy.
type network struct {
	senders []*sender
}

// A sender is the HTTP proxy of a member.
type sender struct {
	addr   string
	server *http.Server
	links  []*redistest.Proxy // to each recipient
}

// advertised returns the address in the URL of a member, for the other members.
func advertised(i int) string { return fmt.Sprintf("192.0.2.%d:2380", i+1) }

// open starts the proxies. peers are the addresses where the members listen for each other.
func (n *network) open(peers []string) error {
	for range peers {
		s := &sender{}
		n.senders = append(n.senders, s)
		if err := s.open(peers); err != nil {
			return err
		}
	}
	return nil
}

func (s *sender) open(peers []string) error {
	for _, peer := range peers {
		link, err := redistest.StartProxy(peer)
		if err != nil {
			return err
		}
		s.links = append(s.links, link)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	s.addr, s.server = listener.Addr().String(), &http.Server{Handler: s.forward()}
	go func() { _ = s.server.Serve(listener) }() // until close
	return nil
}

// forward returns the handler for requests, which can have endless replies.
func (s *sender) forward() http.Handler {
	return &httputil.ReverseProxy{
		Rewrite:       func(*httputil.ProxyRequest) {}, // the request has the URL of the recipient
		Transport:     &http.Transport{DialContext: s.dial, DisableCompression: true},
		FlushInterval: -1,
		ErrorLog:      log.New(io.Discard, "", 0),
	}
}

func (s *sender) dial(ctx context.Context, network, recipient string) (net.Conn, error) {
	for i, link := range s.links {
		if advertised(i) == recipient {
			var dialer net.Dialer
			return dialer.DialContext(ctx, network, link.Addr())
		}
	}
	return nil, fmt.Errorf("%s is no member", recipient)
}

// environment returns the settings that make a member send through its proxy.
func (n *network) environment(i int) []string {
	return []string{"HTTP_PROXY=http://" + n.senders[i].addr, "NO_PROXY=", "no_proxy="}
}

// close ends the proxies. The members have ended.
func (n *network) close() {
	for _, s := range n.senders {
		for _, link := range s.links {
			link.Close()
		}
		if s.server != nil {
			s.server.Close()
		}
	}
}
