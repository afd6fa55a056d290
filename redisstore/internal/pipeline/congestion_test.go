package pipeline

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

// On a narrow link, only as many requests should be in flight as can be answered in time. A long
// link or a fast link has no limit.
func TestCongestionLimitsRequestsOnTheirWay(t *testing.T) {
	for _, c := range []struct {
		name        string
		distance    time.Duration
		each        time.Duration // time for each request on the link
		least, most int           // requests on their way
	}{
		{"fast", time.Millisecond, 0, maxBatch, maxBatch},
		{"long", 800 * time.Millisecond, 0, maxBatch, maxBatch},
		{"20 kB/s", 10 * time.Millisecond, 20 * time.Millisecond, 3, 24},
		{"3 kB/s", 10 * time.Millisecond, 150 * time.Millisecond, 1, 4},
	} {
		var p policy
		p.recordExchange(1, c.distance+c.each, true)
		n := 0
		for range 100 {
			n = p.congestion.room()
			p.congestion.sent = n
			took := c.distance + time.Duration(n)*c.each
			p.recordExchange(n, took, true)
			p.recordCongestion(n, took, false)
			p.congestion.sent = 0
		}
		if n < c.least || n > c.most {
			t.Errorf("%s: %d requests on their way, want %d to %d", c.name, n, c.least, c.most)
		}
	}
}

// A request that cannot be answered in time must not be sent, unless nothing is in flight.
func TestCongestedPipelineSendsWhatCanBeInTime(t *testing.T) {
	now := time.Now()
	request := func(left time.Duration) *Request { return &Request{until: now.Add(left)} }
	hopeless, possible, last := request(100*time.Millisecond), request(time.Second), request(200*time.Millisecond)
	p := &Pipeline{}
	p.policy.congestion = congestion{limit: 4, took: 500 * time.Millisecond}
	var b batch
	p.queue = []*Request{hopeless, possible, last}
	p.choose(&b, 4, now)
	if len(b.requests) != 1 || b.requests[0] != possible {
		t.Errorf("%d requests chosen, want the one that can be in time", len(b.requests))
	}
	p.queue, b.requests = []*Request{hopeless, last}, nil
	p.policy.congestion.sent, p.policy.congestion.sentAt = 1, now
	if p.choose(&b, 4, now); len(b.requests) != 0 {
		t.Errorf("%d requests chosen, which cannot be in time", len(b.requests))
	}
	p.policy.congestion.sent = 0
	if p.choose(&b, 4, now); len(b.requests) != 1 || b.requests[0] != last {
		t.Errorf("%d requests chosen, want the last one to find out", len(b.requests))
	}
}

// While no queued request can be sent, no worker starts. A worker without work would be followed
// at once by the next.
func TestCongestedPipelineWaits(t *testing.T) {
	now := time.Now()
	queue := []*Request{{until: now.Add(100 * time.Millisecond)}, {until: now.Add(300 * time.Millisecond)}}
	for what, c := range map[string]struct {
		congestion congestion
		want       bool
	}{
		"no limit":         {congestion{sent: 1, sentAt: now}, false},
		"nothing sent":     {congestion{limit: 4, took: time.Second}, false},
		"too late":         {congestion{limit: 4, sent: 1, sentAt: now, took: time.Second}, true},
		"in time":          {congestion{limit: 4, sent: 1, sentAt: now, took: 200 * time.Millisecond}, false},
		"no room":          {congestion{limit: 1, sent: 1, sentAt: now, took: time.Millisecond}, true},
		"those sent hang":  {congestion{limit: 1, sent: 1, sentAt: now.Add(-time.Second), took: time.Second}, false},
		"those before two": {congestion{limit: 2, sent: 2, sentAt: now, took: time.Millisecond}, true},
	} {
		if have := c.congestion.mustWait(queue, now); have != c.want {
			t.Errorf("%s: must wait: %t", what, have)
		}
	}
}

// An error meaning "not sent" does not apply to an earlier try of the same request.
func TestUnknownOutcomeOfAnUnsentRetry(t *testing.T) {
	if err := UnknownOutcome(fmt.Errorf("%w: full pool", ErrNotSent)); errors.Is(err, ErrNotSent) {
		t.Errorf("the error is %v", err)
	}
}
