package redistest

import (
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestProxyForwards(t *testing.T) {
	r := newProxySetup(t)
	big := strings.Repeat("x", 1<<20)
	want(t, r.client, "OK", "SET", "k", big)
	want(t, r.client, big, "GET", "k")
	stats := r.proxy.Stats()
	if stats.Accepted != 1 || stats.Requests < 2 || stats.Up < 1<<20 || stats.Down < 1<<20 {
		t.Errorf("got %+v, want 1 connection, 2 requests, and more than 1 MB each way", stats)
	}
}

func TestProxyForwardsTheEnd(t *testing.T) {
	r := newProxySetup(t)
	tap := r.raw(t)
	tap.send(t, "QUIT\r\n")
	tap.wantLine(t, "+OK\r\n")
	if err := tap.readError(longTimeout); !errors.Is(err, io.EOF) {
		t.Errorf("got %v, want %v", err, io.EOF)
	}
	tap.Close()
	eventually(t, "the proxy forgets the connection", func() bool { return len(r.proxy.current(every)) == 0 })
}

func TestProxyToNowhere(t *testing.T) {
	r := newProxySetup(t)
	r.server.Kill()
	_, err := r.client.Call(callContext(t, longTimeout), "PING")
	wantBroken(t, err)
	if err := r.server.Restart(); err != nil {
		t.Fatal(err)
	}
	want(t, r.client, "PONG", "PING")
}

func TestReset(t *testing.T) {
	r := newProxySetup(t)
	tap := r.raw(t)
	r.proxy.Reset()
	wantReset(t, tap)
	want(t, r.client, "PONG", "PING")
}

func TestRefuse(t *testing.T) {
	r := newProxySetup(t)
	want(t, r.client, "PONG", "PING")
	r.proxy.Refuse(true)
	want(t, r.client, "PONG", "PING") // on the open connection
	_, err := dial(t, r.proxy.Addr()).Call(callContext(t, longTimeout), "PING")
	wantBroken(t, err)
	r.proxy.Refuse(false)
	want(t, dial(t, r.proxy.Addr()), "PONG", "PING")
}

func TestFreezeDeliversAfterThaw(t *testing.T) {
	r := newProxySetup(t)
	tap := r.raw(t)
	r.proxy.Freeze()
	_, err := r.client.Call(callContext(t, shortWait), "INCR", "new") // on a connection opened meanwhile
	wantTimeout(t, err)
	tap.send(t, "INCR old\r\n")
	wantTimeout(t, tap.readError(shortWait))
	want(t, r.direct, nil, "GET", "new")
	want(t, r.direct, nil, "GET", "old")

	r.proxy.Thaw()
	tap.wantLine(t, ":1\r\n")
	eventually(t, "the request of a client that has gone arrives", func() bool {
		return r.server.MustCmd(t, "GET", "new") == "1"
	})
}

func TestDropLoses(t *testing.T) {
	r := newProxySetup(t)
	idle, busy := r.raw(t), r.raw(t)
	r.proxy.Drop()
	busy.send(t, "INCR k\r\n")
	wantTimeout(t, busy.readError(shortWait))
	_, err := r.client.Call(callContext(t, shortWait), "INCR", "k") // on a connection opened meanwhile
	wantTimeout(t, err)

	r.proxy.Thaw()
	wantReset(t, busy)
	idle.send(t, "PING\r\n")
	idle.wantLine(t, "+PONG\r\n")
	want(t, r.client, int64(1), "INCR", "k")
}

func TestDropLosesWhatWasFrozen(t *testing.T) {
	r := newProxySetup(t)
	tap := r.raw(t)
	r.proxy.Freeze()
	tap.send(t, "INCR k\r\n")
	wantTimeout(t, tap.readError(shortWait))
	r.proxy.Drop()
	wantTimeout(t, tap.readError(shortWait))
	r.proxy.Heal()
	wantReset(t, tap)
	want(t, r.direct, nil, "GET", "k")
}

func TestCloseOfAFrozenProxy(t *testing.T) {
	r := newProxySetup(t)
	tap := r.raw(t)
	r.proxy.Freeze()
	tap.send(t, "PING\r\n")
	_, err := r.client.Call(callContext(t, shortWait), "PING") // a connection opened meanwhile
	wantTimeout(t, err)
	r.proxy.Close() // returns only when every goroutine has ended
	wantReset(t, tap)
	r.proxy.Close()
}

func TestDelay(t *testing.T) {
	r := newProxySetup(t)
	want(t, r.client, "PONG", "PING")
	near := medianPing(t, r.client)
	const d = time.Millisecond
	r.proxy.Delay(d)
	far := medianPing(t, r.client)
	t.Logf("median PING through the proxy: %v, with %v each way %v", near, d, far)
	if far < 2*d {
		t.Errorf("got a round trip of %v, want at least %v", far, 2*d)
	}
	if quick := fastestPing(t, r.client); quick > near+20*d { // the least disturbed by a busy machine
		t.Errorf("got a round trip of %v, want some %v", quick, near+2*d)
	}
	r.proxy.Delay(0)
	want(t, r.client, "PONG", "PING")
}

func medianPing(t testing.TB, c *Conn) time.Duration { return pings(t, c)[50] }

func fastestPing(t testing.TB, c *Conn) time.Duration { return pings(t, c)[0] }

// pings returns 101 sorted round-trip times.
func pings(t testing.TB, c *Conn) []time.Duration {
	t.Helper()
	trips := make([]time.Duration, 101)
	for i := range trips {
		begin := time.Now()
		if _, err := c.Call(t.Context(), "PING"); err != nil {
			t.Fatal(err)
		}
		trips[i] = time.Since(begin)
	}
	slices.Sort(trips)
	return trips
}

// sendChunk returns when the proxy read s, so s is a separate chunk.
func (r proxySetup) sendChunk(t *testing.T, tap *wireTap, s string) {
	t.Helper()
	before := r.proxy.Stats().Requests
	tap.send(t, s)
	eventually(t, "the proxy has it", func() bool { return r.proxy.Stats().Requests == before+1 })
}

// Chunks delayed at the same time should arrive at the same time, in order.
func TestDelayedChunksOverlap(t *testing.T) {
	r := newProxySetup(t)
	tap := r.raw(t)
	const d = 100 * time.Millisecond
	r.proxy.Delay(d)
	begin := time.Now()
	for i := range 20 {
		r.sendChunk(t, tap, "ECHO "+string(rune('a'+i))+"\r\n")
	}
	for i := range 20 {
		tap.wantLine(t, "$1\r\n"+string(rune('a'+i))+"\r\n")
	}
	took := time.Since(begin)
	if took < 2*d || took > 20*d { // in sequence they would take 40
		t.Errorf("20 requests took %v, want some %v", took, 2*d)
	}
}

func TestAShorterDelayKeepsTheOrder(t *testing.T) {
	r := newProxySetup(t)
	tap := r.raw(t)
	r.proxy.Delay(shortWait)
	r.sendChunk(t, tap, "ECHO a\r\n")
	r.proxy.Delay(0)
	tap.send(t, "ECHO b\r\n")
	tap.wantLine(t, "$1\r\na\r\n$1\r\nb\r\n")
}

// Random faults on many connections should leave a working proxy, and no reply should go to the
// wrong request.
func TestFaultsAtRandom(t *testing.T) {
	r := newProxySetup(t)
	done := make(chan struct{})
	var clients sync.WaitGroup
	for i := range 8 {
		clients.Go(func() {
			c := dial(t, r.proxy.Addr())
			for n := 0; ; n++ {
				select {
				case <-done:
					return
				default:
				}
				want := strings.Repeat(string(rune('a'+i)), n%100+1)
				if got, err := c.Call(callContext(t, shortWait), "ECHO", want); err == nil && got != want {
					t.Errorf("got %v, want %v", got, want)
				}
			}
		})
	}
	for range 20 {
		for _, fault := range []func(){
			r.proxy.Freeze, r.proxy.Reset, r.proxy.Drop, r.proxy.Thaw, r.proxy.Freeze, r.proxy.Heal,
			func() { r.proxy.Refuse(true) },
			func() { r.proxy.Delay(time.Millisecond) },
			func() { r.proxy.CutNextReply("echo") },
			func() { r.proxy.MuteNextReply("echo") },
			func() { r.proxy.LoseNextRequest("echo") },
			func() { _, release := r.proxy.HoldNextRequest("echo"); defer release() },
			func() { r.proxy.Delay(0) },
			r.proxy.Heal,
		} {
			want(t, r.direct, "PONG", "PING") // a round trip's time
			fault()
		}
	}
	close(done)
	clients.Wait()
	want(t, dial(t, r.proxy.Addr()), "PONG", "PING")
}

// BenchmarkPing measures the proxy's overhead and the precision of its delay: compare the result
// with twice the delay.
func BenchmarkPing(b *testing.B) {
	server := Start(b)
	b.Run("direct", func(b *testing.B) { ping(b, server.Addr()) })
	for _, d := range []time.Duration{0, 300 * time.Microsecond, time.Millisecond, 1500 * time.Microsecond} {
		b.Run("delay="+d.String(), func(b *testing.B) {
			proxy := NewProxy(b, server.Addr())
			proxy.Delay(d)
			ping(b, proxy.Addr())
		})
	}
}

func ping(b *testing.B, addr string) {
	c := Dial(addr)
	defer c.Close()
	for b.Loop() {
		if _, err := c.Call(b.Context(), "PING"); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(medianPing(b, c).Microseconds()), "median-µs")
}
