package wire

import (
	"strconv"

	"github.com/dibslock/dibs/redisstore/redisconn"
)

// Requests on a name become a single call: acquire.lua serves several, in order. Uncontended
// requests on several names become a single call to coalesced.lua. It leaves contended requests
// unchanged; they must be sent alone.

// CanMerge reports whether a request can join another request's call.
func (r *Request) CanMerge(o *Request) bool {
	return r.MergeKey != "" && r.MergeKey == o.MergeKey && r.Script == o.Script
}

// Merge adds a request's arguments to a call, whose arguments must be a copy.
func Merge(call *redisconn.Cmd, r *Request) {
	call.Args = append(call.Args, r.Args[r.MergeFrom:]...)
}

// Split returns the reply to the i-th of n merged requests: the server's time and an answer.
func Split(r redisconn.Reply, i, n int) redisconn.Reply {
	list, ok := r.Value.([]any)
	switch {
	case r.Err != nil || n == 1:
		return r
	case !ok || len(list) != n+1:
		return redisconn.Reply{Err: redisconn.Unexpected(r.Value)}
	}
	return redisconn.Reply{Value: []any{list[0], list[i+1]}}
}

// CanCoalesce reports whether a request can be sent together with requests on other names.
func (r *Request) CanCoalesce() bool { return r.Joins != JoinsNot }

// Coalesce combines requests on several names into a single call, reusing the slices of an earlier
// call. It is void when any request is void; the requests are then sent alone.
func Coalesce(call *redisconn.Cmd, requests []*Request) {
	var buf [256]byte
	kinds, ttl, beginning := buf[:0], commonTTL(requests), commonBeginning(requests)
	*call = redisconn.Cmd{Script: Plain().Coalesced, Keys: call.Keys[:0], Args: append(call.Args[:0], "", "", ttl, beginning)}
	for _, r := range requests {
		// The call does not need the holders, the last key, and a release does not need the fence
		// high-water mark before it.
		keys, kind := 4, byte('a')
		if r.Joins != JoinsAcquire {
			keys, kind = 3, 'r'
		}
		kinds = append(kinds, kind)
		if r.Until > 0 && isEarlier(r.Args[r.Until], call.Args[0]) {
			call.Args[0] = r.Args[r.Until]
		}
		call.Keys = append(call.Keys, r.Keys[:keys]...)
		call.Args = append(call.Args, r.Token[len(beginning):])
		if ttl == "" && r.Joins == JoinsAcquire {
			call.Args = append(call.Args, r.TTL)
		}
	}
	call.Args[1] = string(kinds)
}

// commonTTL returns the acquires' TTL, or "" if they differ.
func commonTTL(requests []*Request) (ttl string) {
	for _, r := range requests {
		switch {
		case r.Joins != JoinsAcquire || r.TTL == ttl:
		case ttl == "":
			ttl = r.TTL
		default:
			return ""
		}
	}
	return ttl
}

// commonBeginning returns the common beginning of all tokens, usually the client. It returns "" for
// a single request.
func commonBeginning(requests []*Request) string {
	if len(requests) == 1 {
		return ""
	}
	beginning := requests[0].Token
	for _, r := range requests[1:] {
		n := 0
		for n < min(len(beginning), len(r.Token)) && beginning[n] == r.Token[n] {
			n++
		}
		beginning = beginning[:n]
	}
	return beginning
}

// isEarlier reports whether a request becomes void before another. The times are decimal numbers,
// or "" for never.
func isEarlier(until, other string) bool {
	switch {
	case until == "" || other == "":
		return until != ""
	case len(until) != len(other):
		return len(until) < len(other)
	}
	return until < other
}

// A CoalescedReply is the reply to a coalesced call.
type CoalescedReply struct {
	now      any // the server's time
	micros   int64
	statuses string
}

// ParseCoalesced reads the reply to a coalesced call with n requests.
func ParseCoalesced(v any, n int) (CoalescedReply, error) {
	list, _ := v.([]any)
	in := reader{fields: list}
	c := CoalescedReply{micros: in.int(), statuses: in.string()}
	if in.bad || len(in.fields) > 0 || len(c.statuses) != n {
		return CoalescedReply{}, redisconn.Unexpected(v)
	}
	c.now = list[0]
	return c, nil
}

// isVoid reports whether a request came too late.
func (c CoalescedReply) isVoid(r *Request) bool {
	if r.Until == 0 {
		return false
	}
	return IsPast(r.Args[r.Until], c.micros)
}

// IsPast reports whether a call with this until is void now, in µs on the server's clock.
func IsPast(until string, now int64) bool {
	at, err := strconv.ParseInt(until, 10, 64)
	return err == nil && now > at
}

// Of returns the reply to the i-th request, as if it had been sent alone. It returns false if the
// request must be sent alone.
func (c CoalescedReply) Of(i int, r *Request) (reply redisconn.Reply, served bool) {
	switch status := c.statuses[i]; {
	case status < '1' && c.isVoid(r) && r.Joins == JoinsAcquire:
		return redisconn.Reply{Value: []any{c.now, int64(0)}}, true
	case status < '1' && c.isVoid(r):
		return redisconn.Reply{Value: c.now}, true
	case status < '1':
		return redisconn.Reply{}, false
	case r.Joins != JoinsAcquire:
		return redisconn.Reply{Value: int64('2' - status)}, true
	case status == '1':
		return redisconn.Reply{Value: c.now}, true // avoids an allocation
	default:
		return redisconn.Reply{Value: c.micros + int64(status-'1')}, true
	}
}
