package etcdurl_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/etcdstore"
	"github.com/dibslock/dibs/etcdstore/etcdurl"
	"github.com/dibslock/dibs/internal/test/etcdtest"
	"github.com/dibslock/dibs/internal/test/urltest"
	clientv3 "go.etcd.io/etcd/client/v3"
)

func open(t *testing.T, rawURL string, c etcdurl.Credentials) (*clientv3.Client, *etcdstore.Store) {
	t.Helper()
	u := parse(t, rawURL).With(c)
	cli, err := u.Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cli.Close() })
	return cli, etcdstore.New(cli, u.Options()...)
}

// lockOn acquires a lock and releases it.
func lockOn(t *testing.T, s *etcdstore.Store) error {
	t.Helper()
	locks := dibs.New(s, dibs.Timeout(10*time.Second))
	defer locks.Close()
	lease, err := locks.Mutex("job").TryLock(t.Context())
	if err != nil {
		return err
	}
	return lease.Unlock()
}

// password contains all special characters in a URL.
const password = "p:a/s?s#w%o@r&d+=ü,"

const encoded = "p:a%2Fs%3Fs%23w%25o%40r&d+=ü,"

// addUser turns authentication on, with a user whose rights are those of the documentation.
func addUser(t *testing.T, s *etcdtest.Server) {
	t.Helper()
	cli, _ := open(t, "etcd://"+s.Endpoint(), etcdurl.Credentials{})
	ctx := t.Context()
	_, err1 := cli.UserAdd(ctx, "root", "other")
	_, err2 := cli.UserGrantRole(ctx, "root", "root")
	_, err3 := cli.RoleAdd(ctx, "locks")
	_, err4 := cli.RoleGrantPermission(ctx, "locks", "team/", clientv3.GetPrefixRangeEnd("team/"), clientv3.PermissionType(clientv3.PermReadWrite))
	_, err5 := cli.UserAdd(ctx, "ann", password)
	_, err6 := cli.UserGrantRole(ctx, "ann", "locks")
	_, err7 := cli.AuthEnable(ctx)
	if err := errors.Join(err1, err2, err3, err4, err5, err6, err7); err != nil {
		t.Fatal(err)
	}
}

func TestLogin(t *testing.T) {
	t.Parallel()
	s := etcdtest.NewServer(t)
	addUser(t, s)
	for _, c := range []struct {
		rawURL string
		given  etcdurl.Credentials
		denied string
	}{
		{"etcd://ann:" + encoded + "@" + s.Endpoint() + "/team", etcdurl.Credentials{}, ""},
		{"etcd://" + s.Endpoint() + "/team/sub", etcdurl.Credentials{Username: "ann", Password: password}, ""},
		{"etcd://ann:" + encoded + "@" + s.Endpoint() + "/other", etcdurl.Credentials{}, "permission denied"},
		{"etcd://ann:wr0ng@" + s.Endpoint() + "/team", etcdurl.Credentials{Password: password}, "invalid user ID or password"},
		{"etcd://" + s.Endpoint() + "/team", etcdurl.Credentials{}, "user name is empty"},
	} {
		_, store := open(t, c.rawURL, c.given)
		err := lockOn(t, store)
		if (err == nil) != (c.denied == "") || err != nil && !strings.Contains(err.Error(), c.denied) {
			t.Errorf("%s: have %v, want %q", c.rawURL, err, c.denied)
		}
		if err != nil && strings.Contains(err.Error(), "wr0ng") {
			t.Errorf("%v contains the password", err)
		}
	}
}

// A user is ignored by a cluster without authentication.
func TestLoginWithoutAuthentication(t *testing.T) {
	t.Parallel()
	_, store := open(t, "etcd://ann:secret@"+etcdtest.NewServer(t).Endpoint(), etcdurl.Credentials{})
	if err := lockOn(t, store); err != nil {
		t.Error(err)
	}
}

// Open should wait for no server, also with a password.
func TestOpenWithoutServer(t *testing.T) {
	t.Parallel()
	begin := time.Now()
	open(t, "etcd://ann:secret@127.0.0.1:1?dial_timeout=1h", etcdurl.Credentials{})
	if took := time.Since(begin); took > 10*time.Second {
		t.Errorf("after %v", took)
	}
}

func TestReach(t *testing.T) {
	t.Parallel()
	own, ca, _ := urltest.Certify(t, "127.0.0.1")
	_, otherCA, _ := urltest.Certify(t, "127.0.0.1")
	client, cert, key := urltest.Certify(t, "client")
	plain := etcdtest.NewServer(t).Endpoint()
	secure := startTLS(t, plain, own, client)
	with := "?ca=" + url.PathEscape(ca)
	for rawURL, want := range map[string]string{
		"etcd://127.0.0.1:1":          "connection refused",
		"etcd://127.0.0.1:1," + plain: "",
		"etcds://" + plain + with:     plain + ": ",
		"etcds://" + secure + with:    secure + ": remote error: tls: certificate required",
		"etcd://" + secure:            secure + ": ",
		"etcds://127.0.0.1:1," + secure + "?ca=" + url.PathEscape(otherCA):                           "connection refused; " + secure + ": tls: failed to verify",
		"etcds://" + secure + with + "&cert=" + url.PathEscape(cert) + "&key=" + url.PathEscape(key): "",
	} {
		have := parse(t, rawURL).Reach(t.Context())
		if (have == nil) != (want == "") || have != nil && !strings.Contains(have.Error(), want) {
			t.Errorf("%s: have %v, want %q", rawURL, have, want)
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
		MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{own}, NextProtos: []string{"h2"},
		ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: clients,
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

func TestTLS(t *testing.T) {
	t.Parallel()
	s := etcdtest.NewServer(t)
	own, ca, _ := urltest.Certify(t, "127.0.0.1")
	named, namedCA, _ := urltest.Certify(t, "etcd.internal")
	client, cert, key := urltest.Certify(t, "client")
	byAddress, byName := startTLS(t, s.Endpoint(), own, client), startTLS(t, s.Endpoint(), named, client)
	with := func(name, file string) string { return "&" + name + "=" + url.PathEscape(file) }
	identity := with("cert", cert) + with("key", key)
	for _, c := range []struct {
		rawURL string
		works  bool
	}{
		{"etcds://" + byAddress + "?dial_timeout=1s" + with("ca", ca) + identity, true},
		{"etcds://" + byAddress + "?dial_timeout=1s" + with("ca", ca), false},
		{"etcds://" + byAddress + "?dial_timeout=1s" + with("ca", namedCA) + identity, false},
		{"etcds://" + byAddress + "?insecure_skip_verify=true" + identity, true},
		{"etcds://" + byName + "?dial_timeout=1s" + with("ca", namedCA) + identity, false},
		{"etcds://" + byName + "?server_name=etcd.internal" + with("ca", namedCA) + identity, true},
		{"etcd://" + byAddress, false},
	} {
		t.Run("", func(t *testing.T) {
			t.Parallel()
			cli, _ := open(t, c.rawURL, etcdurl.Credentials{})
			limit := time.Second // a client repeats a handshake that failed
			if c.works {
				limit = 20 * time.Second
			}
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			if _, err := cli.Get(ctx, "a"); (err == nil) != c.works {
				t.Errorf("%s: have %v, want works %t", c.rawURL, err, c.works)
			}
		})
	}
}
