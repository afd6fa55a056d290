package wire

import (
	"slices"
	"testing"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/redisstore/redisconn"
)

// Only requests that coalesced.lua can serve in a step should be coalesced. A shared acquire needs
// the holders. A release that reserves or votes does more than delete. A user's own token fills the
// whole lock value.
func TestCanCoalesce(t *testing.T) {
	f := Format{Prefix: "lock:"}
	mutex := driver.AcquireRequest{Name: "a", Token: "h:1:c:1", Client: "h:1:c", TTL: time.Second, Weight: 1, Limit: 1}
	reader, permit, waiter, own := mutex, mutex, mutex, mutex
	reader.Limit, permit.Limit, waiter.Queue, own.Token = driver.Unlimited, 3, true, "t"
	redisson := Format{Redisson: true}
	end := driver.ReleaseRequest{Name: "a", Token: mutex.Token, Fence: 7}
	reserve, unreserve, ownEnd := end, end, end
	reserve.Reserve, unreserve.Unreserve, ownEnd.Token = time.Second, true, "t"
	voting, votingEnd := mutex, end
	voting.Vote, votingEnd.Vote = &driver.Vote{Ticket: 1}, &driver.Vote{Ticket: 1}
	for name, c := range map[string]struct {
		encode func(r *Request)
		want   Joins
	}{
		"a mutex":              {func(r *Request) { f.Acquire(r, mutex, false) }, JoinsAcquire},
		"a waiter":             {func(r *Request) { f.Acquire(r, waiter, false) }, JoinsAcquire},
		"own token":            {func(r *Request) { f.Acquire(r, own, false) }, JoinsNot},
		"for Redisson":         {func(r *Request) { redisson.Acquire(r, mutex, false) }, JoinsNot},
		"release for Redisson": {func(r *Request) { redisson.Release(r, end, "", false) }, JoinsNot},
		"a reader":             {func(r *Request) { f.Acquire(r, reader, false) }, JoinsNot},
		"a permit":             {func(r *Request) { f.Acquire(r, permit, false) }, JoinsNot},
		"a vote":               {func(r *Request) { f.Vote(r, voting) }, JoinsNot},
		"a release":            {func(r *Request) { f.Release(r, end, "", false) }, JoinsRelease},
		"release of own token": {func(r *Request) { f.Release(r, ownEnd, "", false) }, JoinsNot},
		"an end of a reserve":  {func(r *Request) { f.Release(r, unreserve, "", false) }, JoinsRelease},
		"a reserve":            {func(r *Request) { f.Release(r, reserve, "", false) }, JoinsNot},
		"a cancel":             {func(r *Request) { f.Release(r, end, Entry(waiter), false) }, JoinsCancel},
		"a release by a voter": {func(r *Request) { f.Release(r, votingEnd, "", false) }, JoinsNot},
		"a resize":             {func(r *Request) { f.Resize(r, reader) }, JoinsNot},
	} {
		r := Request{Joins: JoinsAcquire} // from an earlier use
		c.encode(&r)
		if r.Joins != c.want || r.CanCoalesce() != (c.want != JoinsNot) {
			t.Errorf("%s: joins as %d, want %d", name, r.Joins, c.want)
		}
	}
}

// Only acquires on the same key with the same kind of call are merged.
func TestCanMerge(t *testing.T) {
	f := Format{Prefix: "lock:"}
	acquire := func(name string) *Request {
		r := new(Request)
		f.Acquire(r, driver.AcquireRequest{Name: name, Token: "t", Client: "c", TTL: time.Second, Weight: 1, Limit: 1}, false)
		return r
	}
	release := new(Request)
	f.Release(release, driver.ReleaseRequest{Name: "a", Token: "t"}, "", false)
	other := acquire("a")
	other.Script = Plain().Coalesced
	a := acquire("a")
	for name, c := range map[string]struct {
		r    *Request
		want bool
	}{
		"the same name": {acquire("a"), true}, "another name": {acquire("b"), false},
		"a release": {release, false}, "another script": {other, false},
	} {
		if have := a.CanMerge(c.r); have != c.want {
			t.Errorf("%s: %v", name, have)
		}
	}
	if release.CanMerge(release) {
		t.Error("two releases are merged")
	}
	var call redisconn.Cmd
	call.Args = append(call.Args, a.Args...)
	Merge(&call, acquire("a"))
	if want := 2*len(a.Args) - a.MergeFrom; len(call.Args) != want || call.Args[a.MergeFrom] != call.Args[len(a.Args)] {
		t.Errorf("%q: want the arguments of both after the common ones", call.Args)
	}
}

// A coalesced call carries all parameters of each request.
func TestCoalesce(t *testing.T) {
	f := Format{Prefix: "lock:"}
	var acquire, release Request
	f.Acquire(&acquire, driver.AcquireRequest{Name: "a", Token: "h:1:c:1", Client: "h:1:c", TTL: 3 * time.Second, Weight: 1, Limit: 1}, false)
	f.Release(&release, driver.ReleaseRequest{Name: "b", Token: "h:1:c:2", Fence: 7}, "", false)
	acquire.SetUntil("500")
	release.SetUntil("600")
	var call redisconn.Cmd
	Coalesce(&call, []*Request{&acquire, &release})
	keys := slices.Concat(acquire.Keys[:4], release.Keys[:3])
	if args := []string{"500", "ar", "3000", "h:1:c:", "1", "2"}; !slices.Equal(call.Keys, keys) || !slices.Equal(call.Args, args) {
		t.Errorf("keys %q, args %q, want %q and %q", call.Keys, call.Args, keys, args)
	}
	for _, n := range []int{2, 4} {
		if c, err := ParseCoalesced([]any{int64(100), "140"}, n); err == nil {
			t.Errorf("%+v: three statuses for %d requests are accepted", c, n)
		}
	}
	c, err := ParseCoalesced([]any{int64(100), "140"}, 3)
	if err != nil {
		t.Fatal(err)
	}
	if r, served := c.Of(0, &acquire); !served || r.Value != int64(100) {
		t.Errorf("%+v, %v: want the server's time", r, served)
	}
	if r, served := c.Of(1, &acquire); !served || r.Value != int64(103) {
		t.Errorf("%+v, %v: want the time and 3", r, served)
	}
	if _, served := c.Of(2, &acquire); served {
		t.Error("an unserved acquire has a reply")
	}
	if _, served := c.Of(2, &release); served {
		t.Error("an unserved release has a reply")
	}
	if r, served := c.Of(0, &release); !served || r.Value != int64(1) {
		t.Errorf("%+v, %v: want a release", r, served)
	}
	if c, err = ParseCoalesced([]any{int64(550), "022"}, 3); err != nil {
		t.Fatal(err)
	}
	if r, served := c.Of(1, &release); !served || r.Value != int64(0) {
		t.Errorf("%+v, %v: want that it did not hold", r, served)
	}
	if _, void, err := ParseAcquire(first(c.Of(0, &acquire))); !void || err != nil {
		t.Errorf("void %t, %v: want a void acquire", void, err)
	}
	if _, served := c.Of(0, &release); served {
		t.Error("a release that came in time is void")
	}
}

func first(r redisconn.Reply, _ bool) any { return r.Value }

// A coalesced call should become void when its first request does.
func TestCoalescedUntil(t *testing.T) {
	for _, c := range []struct {
		untils []string
		want   string
	}{
		{[]string{""}, ""}, {[]string{"", "7", ""}, "7"}, {[]string{"10", "9", "11"}, "9"}, {[]string{"12", "11", "13"}, "11"}, {[]string{"5", "0"}, "0"},
	} {
		var call redisconn.Cmd
		var requests []*Request
		for _, until := range c.untils {
			r := Request{Until: 1, Joins: JoinsRelease}
			r.Keys, r.Args = make([]string, 5), []string{"token", until}
			requests = append(requests, &r)
		}
		Coalesce(&call, requests)
		if call.Args[0] != c.want {
			t.Errorf("of %q it is %q, want %q", c.untils, call.Args[0], c.want)
		}
	}
}

// Common parts of the requests are sent once.
func TestCoalesceSendsOnceWhatIsCommon(t *testing.T) {
	request := func(token, ttl string) *Request {
		r := &Request{Joins: JoinsRelease, Token: token, TTL: ttl}
		if ttl != "" {
			r.Joins = JoinsAcquire
		}
		r.Keys = make([]string, 5)
		return r
	}
	for _, c := range []struct {
		requests []*Request
		want     []string
	}{
		{[]*Request{request("h:1:c:x", "30")}, []string{"", "a", "30", "", "h:1:c:x"}},
		{[]*Request{request("h:1:c:x", "")}, []string{"", "r", "", "", "h:1:c:x"}},
		{[]*Request{request("h:1:c:x", "30"), request("h:1:c:y", "30"), request("h:1:c:", "")}, []string{"", "aar", "30", "h:1:c:", "x", "y", ""}},
		{[]*Request{request("h:1:c:x", "30"), request("h:1:c:y", ""), request("h:1:c:z", "40")}, []string{"", "ara", "", "h:1:c:", "x", "30", "y", "z", "40"}},
		{[]*Request{request("h:1:c:x", "30"), request("own", "")}, []string{"", "ar", "30", "", "h:1:c:x", "own"}},
	} {
		var call redisconn.Cmd
		if Coalesce(&call, c.requests); !slices.Equal(call.Args, c.want) {
			t.Errorf("have %q, want %q", call.Args, c.want)
		}
	}
}
