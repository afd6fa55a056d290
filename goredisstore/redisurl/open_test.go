package redisurl_test

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/goredisstore"
	"github.com/dibslock/dibs/goredisstore/redisurl"
	"github.com/dibslock/dibs/internal/test/redistest"
	"github.com/dibslock/dibs/redisstore"
	"github.com/dibslock/dibs/redisstore/redisconn"
	"github.com/redis/go-redis/v9"
)

// open returns a client that is closed when the test ends.
func open(t *testing.T, rawURL string, c redisurl.Credentials) redis.UniversalClient {
	t.Helper()
	u, err := redisurl.Parse(rawURL)
	if err != nil {
		t.Fatal(err)
	}
	rdb, err := u.With(c).Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { rdb.Close() })
	return rdb
}

// password contains all special characters in a URL.
const password = "p:a/s?s#w%o@r&d+=ü"

const encoded = "p:a%2Fs%3Fs%23w%25o@r&d+=ü"

func TestServer(t *testing.T) {
	s := redistest.Start(t, "--requirepass", password)
	s.MustCmd(t, "ACL", "SETUSER", "ann:1", "on", ">"+password, "~*", "&*", "+@all")
	for _, c := range []struct {
		rawURL string
		given  redisurl.Credentials
		whoami string
	}{
		{"redis://:" + encoded + "@" + s.Addr() + "/3?client_name=me", redisurl.Credentials{}, "default"},
		{"redis://ann%3A1:" + encoded + "@" + s.Addr() + "?db=3&protocol=2&client_name=me", redisurl.Credentials{}, "ann:1"},
		{"redis://" + s.Addr() + "/3?client_name=me", redisurl.Credentials{Username: "ann:1", Password: password}, "ann:1"},
		{"redis://ann%3A1@" + s.Addr() + "/3?client_name=me", redisurl.Credentials{Username: "bob", Password: password}, "ann:1"},
	} {
		rdb := open(t, c.rawURL, c.given)
		if have, err := rdb.Do(t.Context(), "ACL", "WHOAMI").Text(); err != nil || have != c.whoami {
			t.Errorf("%s: want user %s, have %s, %v", c.rawURL, c.whoami, have, err)
		}
		info, err := rdb.Do(t.Context(), "CLIENT", "INFO").Text()
		if err != nil || !strings.Contains(info, " db=3 ") || !strings.Contains(info, " name=me ") {
			t.Errorf("%s: want database 3 and the name me, have %s, %v", c.rawURL, info, err)
		}
		lockOn(t, rdb)
	}
}

func TestWrongPassword(t *testing.T) {
	s := redistest.Start(t, "--requirepass", password)
	rdb := open(t, "redis://:wr0ng@"+s.Addr(), redisurl.Credentials{Password: password})
	err := rdb.Ping(t.Context()).Err()
	if err == nil || !strings.Contains(err.Error(), "WRONGPASS") || strings.Contains(err.Error(), "wr0ng") {
		t.Errorf("want the URL's password to be rejected, have %v", err)
	}
}

func TestSocket(t *testing.T) {
	dir, err := os.MkdirTemp("", "dibs") // t.TempDir may be too long for a socket path
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "a socket")
	redistest.Start(t, "--unixsocket", path, "--requirepass", password)
	rdb := open(t, "unix://:"+encoded+"@"+strings.ReplaceAll(path, " ", "%20")+"?db=2", redisurl.Credentials{})
	info, err := rdb.Do(t.Context(), "CLIENT", "INFO").Text()
	if err != nil || !strings.Contains(info, path) || !strings.Contains(info, " db=2 ") {
		t.Errorf("want a client of the socket in database 2, have %s, %v", info, err)
	}
	lockOn(t, rdb)
}

func TestClusterOfOneNode(t *testing.T) {
	s := redistest.StartClusterNode(t)
	lockOn(t, open(t, "redis+cluster://"+s.Addr(), redisurl.Credentials{}))
}

// lockOn acquires a lock and releases it.
func lockOn(t *testing.T, rdb redis.UniversalClient) {
	t.Helper()
	locks := dibs.New(goredisstore.New(rdb))
	defer locks.Close()
	lease, err := locks.Mutex("job").TryLock(t.Context())
	if err != nil {
		t.Error(err)
		return
	}
	if err := lease.Unlock(); err != nil {
		t.Error(err)
	}
}

// twemproxy closes a connection that begins with HELLO.
func TestProxy(t *testing.T) {
	t.Parallel()
	at := "redis://" + redistest.StartTwemproxy(t, "{}", redistest.Start(t), redistest.Start(t))
	if err := open(t, at, redisurl.Credentials{}).Ping(t.Context()).Err(); err == nil {
		t.Error("a client that begins with HELLO works")
	}
	u, err := redisurl.Parse(at + "?proxy=true")
	if err != nil {
		t.Fatal(err)
	}
	rdb, err := u.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer rdb.Close()
	locks := dibs.New(goredisstore.New(rdb, u.Options()...))
	defer locks.Close()
	for i := range 20 {
		lease, err := locks.Mutex(strconv.Itoa(i)).TryLock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := lease.Unlock(); err != nil {
			t.Error(err)
		}
	}
	if _, err := locks.All([]string{"a", "b"}).TryLock(t.Context()); !errors.Is(err, dibs.ErrInvalid) {
		t.Errorf("names with two tags: %v", err)
	}
}

// A server with a password is also used without HELLO.
func TestProxyWithPassword(t *testing.T) {
	t.Parallel()
	s, _ := redistest.StartTLS(t, "--requirepass", password)
	for _, rawURL := range []string{
		"redis://:" + encoded + "@" + s.Addr() + "?proxy=true",
		"redis://default:" + encoded + "@" + s.Addr() + "?proxy=true&protocol=2",
		"rediss://:" + encoded + "@" + s.TLSAddr() + "?proxy=true&insecure_skip_verify=true",
	} {
		rdb := open(t, rawURL, redisurl.Credentials{})
		if info, err := rdb.Do(t.Context(), "CLIENT", "INFO").Text(); err != nil || !strings.Contains(info, " resp=2") {
			t.Errorf("%s: %q, %v", rawURL, info, err)
		}
	}
}

// A URL's options should be those in its parameters.
func TestOptions(t *testing.T) {
	for rawURL, want := range map[string]string{ // why the store cannot be a node of a quorum
		"redis://h": "", "redis://h?proxy=false&hidden_cluster=false": "", "redis+cluster://h": "",
		"redis://h?proxy=true": "proxy", "unix:///s?hidden_cluster=true": "cluster",
	} {
		u, err := redisurl.Parse(rawURL)
		if err != nil {
			t.Fatal(err)
		}
		err = redisstore.New(redisconn.Invalid("none"), u.Options()...).CanVote()
		if (err != nil) != (want != "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", rawURL, err, want)
		}
	}
}
