package redisurl_test

import (
	"context"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/goredisstore"
	"github.com/dibslock/dibs/goredisstore/redisurl"
	"github.com/dibslock/dibs/internal/test/redistest"
	"github.com/redis/go-redis/v9"
)

func TestTLS(t *testing.T) {
	t.Parallel()
	s, _ := redistest.StartTLS(t, "--requirepass", password)
	at := "rediss://:" + encoded + "@" + s.TLSAddr() + "/1?"
	handOver(t, open(t, at+"ca="+url.QueryEscape(s.CAFile()), redisurl.Credentials{}))
	handOver(t, open(t, at+"insecure_skip_verify=true", redisurl.Credentials{}))
	err := open(t, at, redisurl.Credentials{}).Ping(t.Context()).Err()
	if err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("a server with an unknown CA: %v", err)
	}
	err = open(t, at+"server_name=example.org&ca="+url.QueryEscape(s.CAFile()), redisurl.Credentials{}).Ping(t.Context()).Err()
	if err == nil || !strings.Contains(err.Error(), "example.org") {
		t.Errorf("a server with another name: %v", err)
	}
}

// The server requires client certificates.
func TestMutualTLS(t *testing.T) {
	t.Parallel()
	s, _ := redistest.StartTLS(t, "--tls-auth-clients", "yes")
	files := url.Values{"ca": {s.CAFile()}, "cert": {s.CertFile()}, "key": {s.KeyFile()}}
	handOver(t, open(t, "rediss://"+s.TLSAddr()+"?"+files.Encode(), redisurl.Credentials{}))
	files.Del("cert")
	files.Del("key")
	if err := open(t, "rediss://"+s.TLSAddr()+"?"+files.Encode(), redisurl.Credentials{}).Ping(t.Context()).Err(); err == nil {
		t.Error("a client without a certificate is accepted")
	}
}

func TestSentinel(t *testing.T) {
	t.Parallel()
	s := redistest.StartSentinels(t, 1, 3, "--requirepass", password)
	handOver(t, open(t, "redis+sentinel://:"+encoded+"@"+strings.Join(s.Addrs(), ",")+"/"+s.MasterName+"/2", redisurl.Credentials{}))
}

func TestCluster(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3, 0, "--requirepass", password)
	handOver(t, open(t, "redis+cluster://"+strings.Join(c.Addrs(), ","), redisurl.Credentials{Password: password}))
}

// handOver repeats a hand-off until the waiter is notified. The first ones may come
// before the subscription works.
func handOver(t *testing.T, rdb redis.UniversalClient) {
	t.Helper()
	notified := make(chan bool, 2)
	locks := dibs.New(goredisstore.New(rdb), dibs.Observe(dibs.Hooks{AcquireEnd: func(_ context.Context, a dibs.AcquireEnd) { notified <- a.Notified }}))
	defer locks.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for {
		first, err := locks.Mutex("job").Lock(ctx)
		if err != nil {
			t.Error(err)
			return
		}
		<-notified
		second := make(chan error)
		go func() {
			second <- locks.Mutex("job").Do(ctx, func(context.Context) error { return nil })
		}()
		for waiting := 0; waiting == 0 && ctx.Err() == nil; {
			state, err := locks.Inspect(ctx, "job")
			if err != nil {
				t.Error(err)
			}
			waiting = state.Waiting
		}
		if err := first.Unlock(); err != nil {
			t.Error(err)
		}
		if err := <-second; err != nil {
			t.Error(err)
			return
		}
		if <-notified {
			return
		}
	}
}
