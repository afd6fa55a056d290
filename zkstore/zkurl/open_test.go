package zkurl_test

import (
	"context"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/internal/test/urltest"
	"github.com/dibslock/dibs/internal/test/zktest"
	"github.com/dibslock/dibs/zkstore"
	"github.com/dibslock/dibs/zkstore/zkurl"
)

func open(t *testing.T, rawURL string, c zkurl.Credentials) *zkstore.Store {
	t.Helper()
	s := parse(t, rawURL).With(c).Open()
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// lockOn acquires a lock and releases it.
func lockOn(ctx context.Context, s *zkstore.Store) error {
	locks := dibs.New(s, dibs.TTL(4*time.Second), dibs.Timeout(10*time.Second))
	defer locks.Close()
	lease, err := locks.Mutex("job").TryLock(ctx)
	if err != nil {
		return err
	}
	return lease.Unlock()
}

// password contains all special characters in a URL.
const password = "p:a/s?s#w%o@r&d+=ü,"

const encoded = "p:a%2Fs%3Fs%23w%25o%40r&d+=ü,"

func TestLogin(t *testing.T) {
	t.Parallel()
	s := zktest.NewServer(t)
	for _, c := range []struct {
		rawURL string
		given  zkurl.Credentials
		denied bool
	}{
		{"zk://ann:" + encoded + "@" + s.Endpoint() + "/team", zkurl.Credentials{}, false},
		{"zk://" + s.Endpoint() + "/team", zkurl.Credentials{Username: "ann", Password: password}, false},
		{"zk://" + s.Endpoint() + "/other", zkurl.Credentials{}, false},
		{"zk://ann:wr0ng@" + s.Endpoint() + "/team", zkurl.Credentials{Password: password}, true},
		{"zk://ann@" + s.Endpoint() + "/team", zkurl.Credentials{}, true},
		{"zk://" + s.Endpoint() + "/team", zkurl.Credentials{}, true},
	} {
		err := lockOn(t.Context(), open(t, c.rawURL, c.given))
		if (err != nil) != c.denied || err != nil && !strings.Contains(err.Error(), "not authenticated") {
			t.Errorf("%s: have %v, want denied %t", c.rawURL, err, c.denied)
		}
		if err != nil && strings.Contains(err.Error(), "wr0ng") {
			t.Errorf("%v contains the password", err)
		}
	}
}

// Open should wait for no server.
func TestOpenWithoutServer(t *testing.T) {
	t.Parallel()
	begin := time.Now()
	open(t, "zk://ann:secret@127.0.0.1:1?connect_timeout=1h", zkurl.Credentials{})
	if took := time.Since(begin); took > 10*time.Second {
		t.Errorf("after %v", took)
	}
}

func TestTLS(t *testing.T) {
	t.Parallel()
	s := zktest.NewServer(t)
	own, ca, _ := urltest.Certify(t, "127.0.0.1")
	named, namedCA, _ := urltest.Certify(t, "zookeeper.internal")
	local, localCA, _ := urltest.Certify(t, "localhost")
	client, cert, key := urltest.Certify(t, "client")
	byAddress, byName, byHost := startTLS(t, s.Endpoint(), own, client), startTLS(t, s.Endpoint(), named, client), startTLS(t, s.Endpoint(), local, client)
	byHost = strings.Replace(byHost, "127.0.0.1", "localhost", 1)
	with := func(name, file string) string { return "&" + name + "=" + url.PathEscape(file) }
	identity := with("cert", cert) + with("key", key)
	for _, c := range []struct {
		rawURL string
		works  bool
	}{
		{"zks://" + byAddress + "/a?connect_timeout=5s" + with("ca", ca) + identity, true},
		{"zks://" + byAddress + "/b?connect_timeout=5s" + with("ca", ca), false},
		{"zks://" + byAddress + "/c?connect_timeout=5s" + with("ca", namedCA) + identity, false},
		{"zks://" + byAddress + "/d?insecure_skip_verify=true" + identity, true},
		{"zks://" + byName + "/e?connect_timeout=5s" + with("ca", namedCA) + identity, false},
		{"zks://" + byName + "/f?server_name=zookeeper.internal" + with("ca", namedCA) + identity, true},
		{"zks://" + byHost + "/g?connect_timeout=5s" + with("ca", localCA) + identity, true},
		{"zk://" + byAddress + "/h", false},
	} {
		t.Run("", func(t *testing.T) {
			t.Parallel()
			limit := time.Second // a store repeats a handshake that failed
			if c.works {
				limit = 20 * time.Second
			}
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			if err := lockOn(ctx, open(t, c.rawURL, zkurl.Credentials{})); (err == nil) != c.works {
				t.Errorf("%s: have %v, want works %t", c.rawURL, err, c.works)
			}
		})
	}
}
