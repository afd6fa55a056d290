package zkurl_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/dibslock/dibs/internal/test/urltest"
	"github.com/dibslock/dibs/internal/test/zktest"
)

func TestReach(t *testing.T) {
	t.Parallel()
	own, ca, _ := urltest.Certify(t, "127.0.0.1")
	_, otherCA, _ := urltest.Certify(t, "127.0.0.1")
	client, cert, key := urltest.Certify(t, "client")
	server := zktest.NewServer(t)
	plain := server.Endpoint()
	secure := startTLS(t, plain, own, client)
	with := "?ca=" + url.PathEscape(ca)
	for rawURL, want := range map[string]string{
		"zk://127.0.0.1:1":          "connection refused",
		"zk://127.0.0.1:1," + plain: "",
		"zks://" + plain + with:     plain + ": ",
		"zks://" + secure + with:    secure + ": remote error: tls: certificate required",
		"zk://" + secure:            secure + ": ",
		"zks://127.0.0.1:1," + secure + "?ca=" + url.PathEscape(otherCA):                           "connection refused; " + secure + ": tls: failed to verify",
		"zks://" + secure + with + "&cert=" + url.PathEscape(cert) + "&key=" + url.PathEscape(key): "",
	} {
		have := parse(t, rawURL).Reach(t.Context())
		if (have == nil) != (want == "") || have != nil && !strings.Contains(have.Error(), want) {
			t.Errorf("%s: have %v, want %q", rawURL, have, want)
		}
	}
	if text, err := server.Command("mntr"); err != nil || !strings.Contains(text, "zk_global_sessions\t0\n") {
		t.Errorf("sessions are left: %v\n%s", err, text)
	}
}

// A server without a majority accepts connections, and ends them. Later, it becomes read-only.
func TestReachWithoutMajority(t *testing.T) {
	t.Parallel()
	e := zktest.NewCluster(t, 3, "-Dreadonlymode.enabled=true")
	e.Members[0].Kill()
	e.Members[1].Kill()
	u := parse(t, "zk://"+e.Members[2].Endpoint())
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, want := range []string{"it serves no client", "the server is read-only"} {
		var err error
		for ctx.Err() == nil && (err == nil || !strings.Contains(err.Error(), want)) {
			err = u.Reach(ctx)
		}
		if ctx.Err() != nil {
			t.Errorf("have %v, want %q", err, want)
		}
	}
}

// startTLS starts a proxy that accepts TLS for a server, from clients with a certificate. It returns
// its address.
func startTLS(t *testing.T, server string, own, client tls.Certificate) string {
	t.Helper()
	clients := x509.NewCertPool()
	clients.AddCert(client.Leaf)
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
		MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{own}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: clients,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go forward(conn, server)
		}
	}()
	return listener.Addr().String()
}

// forward forwards a connection to a server until one of them ends it.
func forward(client net.Conn, server string) {
	defer client.Close()
	conn, err := net.Dial("tcp", server)
	if err != nil {
		return
	}
	defer conn.Close()
	go func() {
		_, _ = io.Copy(conn, client)
		conn.Close()
	}()
	_, _ = io.Copy(client, conn)
}
