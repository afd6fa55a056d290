package redistest

import (
	"context"
	"testing"
	"time"
)

func TestCutNextReply(t *testing.T) {
	r := newProxySetup(t)
	cut := r.proxy.CutNextReply("Order:42")
	want(t, r.client, nil, "GET", "order:41")
	_, err := r.client.Call(callContext(t, longTimeout), "INCR", "ORDER:42")
	wantBroken(t, err)
	wantClosed(t, "the reply is cut", cut)
	want(t, r.direct, "1", "GET", "ORDER:42") // the server has executed it
	want(t, r.client, "1", "GET", "ORDER:42") // the trap fires once
}

func TestMuteNextReply(t *testing.T) {
	r := newProxySetup(t)
	tap := r.raw(t)
	muted := r.proxy.MuteNextReply("incr")
	tap.send(t, "INCR k\r\n")
	wantClosed(t, "the reply is swallowed", muted)
	want(t, r.direct, "1", "GET", "k")
	tap.send(t, "INCR k\r\n")
	wantTimeout(t, tap.readError(shortWait))
	want(t, r.client, "1", "GET", "k") // the second request was dropped; other connections work

	r.proxy.Thaw()
	wantReset(t, tap)
}

func TestResetEndsASilentConnection(t *testing.T) {
	r := newProxySetup(t)
	tap := r.raw(t)
	muted := r.proxy.MuteNextReply("incr")
	tap.send(t, "INCR k\r\n")
	wantClosed(t, "the reply is swallowed", muted)
	r.proxy.Reset()
	wantReset(t, tap)
}

func TestLoseNextRequest(t *testing.T) {
	r := newProxySetup(t)
	tap := r.raw(t)
	lost := r.proxy.LoseNextRequest("incr")
	tap.send(t, "INCR k\r\n")
	wantClosed(t, "the request is lost", lost)
	wantTimeout(t, tap.readError(shortWait))
	want(t, r.client, int64(1), "INCR", "k") // the trap fires once; other connections work
}

func TestHoldNextRequest(t *testing.T) {
	r := newProxySetup(t)
	held, release := r.proxy.HoldNextRequest("late")
	ctx, cancel := context.WithCancel(callContext(t, time.Minute))
	failed := make(chan error, 1)
	go func() {
		_, err := r.client.Call(ctx, "INCR", "late")
		failed <- err
	}()
	wantClosed(t, "the request is held", held)
	cancel()
	if err := receive(t, failed); err == nil {
		t.Error("a held request has a reply")
	}
	r.client.Close()
	want(t, r.direct, nil, "GET", "late")
	release()
	r.wantLate(t)
	release() // delivers it once
	want(t, r.direct, "1", "GET", "late")
}

func (r proxySetup) wantLate(t *testing.T) {
	t.Helper()
	eventually(t, "the late request arrives", func() bool {
		return r.server.MustCmd(t, "GET", "late") == "1"
	})
}

func TestAHeldRequestSurvivesItsClient(t *testing.T) {
	for name, fault := range map[string]func(*Proxy){
		"Reset":  (*Proxy).Reset,
		"Heal":   (*Proxy).Heal,
		"Freeze": (*Proxy).Freeze,
		"Drop":   (*Proxy).Drop,
	} {
		t.Run(name, func(t *testing.T) {
			r := newProxySetup(t)
			tap := r.raw(t)
			held, release := r.proxy.HoldNextRequest("late")
			tap.send(t, "INCR late\r\n")
			wantClosed(t, "the request is held", held)
			fault(r.proxy)
			want(t, r.direct, nil, "GET", "late")
			release()
			r.wantLate(t)
		})
	}
}

func TestHeldRequestSilencesItsConnection(t *testing.T) {
	r := newProxySetup(t)
	tap := r.raw(t)
	held, release := r.proxy.HoldNextRequest("late")
	tap.send(t, "INCR late\r\n")
	wantClosed(t, "the request is held", held)
	release()
	r.wantLate(t)
	tap.send(t, "INCR late\r\n")
	wantTimeout(t, tap.readError(shortWait))
	want(t, r.direct, "1", "GET", "late")
}

func TestReleaseDisarms(t *testing.T) {
	r := newProxySetup(t)
	_, release := r.proxy.HoldNextRequest("late")
	release()
	want(t, r.client, int64(1), "INCR", "late")
}

// A request is matched on arrival, and held when it would be delivered. A release in between lets
// it pass.
func TestReleaseOfARequestUnderWay(t *testing.T) {
	r := newProxySetup(t)
	tap := r.raw(t)
	_, release := r.proxy.HoldNextRequest("late")
	r.proxy.Freeze()
	r.sendChunk(t, tap, "INCR late\r\n")
	release()
	r.proxy.Thaw()
	tap.wantLine(t, ":1\r\n")
}

func TestReleaseAfterClose(t *testing.T) {
	r := newProxySetup(t)
	tap := r.raw(t)
	held, release := r.proxy.HoldNextRequest("late")
	tap.send(t, "INCR late\r\n")
	wantClosed(t, "the request is held", held)
	r.proxy.Close()
	release()
	wantReset(t, tap)
	want(t, r.direct, nil, "GET", "late")
}

func TestHealDisarms(t *testing.T) {
	r := newProxySetup(t)
	r.proxy.CutNextReply("incr")
	r.proxy.LoseNextRequest("incr")
	r.proxy.Refuse(true)
	r.proxy.Heal()
	want(t, r.client, int64(1), "INCR", "k")
}

func TestOldestTrapFiresFirst(t *testing.T) {
	r := newProxySetup(t)
	first, second := r.proxy.CutNextReply("incr"), r.proxy.CutNextReply("k")
	_, err := r.client.Call(callContext(t, longTimeout), "INCR", "k")
	wantBroken(t, err)
	wantClosed(t, "the first trap springs", first)
	select {
	case <-second:
		t.Fatal("the second trap has fired, too")
	default:
	}
	_, err = r.client.Call(callContext(t, longTimeout), "INCR", "k")
	wantBroken(t, err)
	wantClosed(t, "the second trap springs", second)
	want(t, r.client, "2", "GET", "k")
}

// A cut with a delay is visible as late as the reply would be.
func TestCutsAreDelayedToo(t *testing.T) {
	r := newProxySetup(t)
	want(t, r.client, "PONG", "PING")
	const d = 20 * time.Millisecond
	r.proxy.Delay(d)
	r.proxy.CutNextReply("incr")
	begin := time.Now()
	_, err := r.client.Call(callContext(t, longTimeout), "INCR", "k")
	wantBroken(t, err)
	if took := time.Since(begin); took < 2*d {
		t.Errorf("took %v, want at least %v", took, 2*d)
	}
}
