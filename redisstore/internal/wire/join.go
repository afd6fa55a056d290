package wire

import "github.com/dibslock/dibs/redisstore/redisconn"

// Requests on one name become one call: acquire.lua serves several, in order. Uncontended
// requests on several names become one call of coalesced.lua. It leaves a contended request
// unchanged, and that request has to be sent alone.

// CanMerge reports whether a request can be part of the call of another one.
func (r *Request) CanMerge(o *Request) bool {
	return r.MergeKey != "" && r.MergeKey == o.MergeKey && r.Script == o.Script
}

// Merge adds the arguments of a request to a call, whose arguments must be a copy.
func Merge(call *redisconn.Cmd, r *Request) {
	call.Args = append(call.Args, r.Args[r.MergeFrom:]...)
}

// Split returns the reply to the i-th of n merged requests: the server's time and one
// answer.
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

// BeginCoalesced begins a coalesced call, in the slices of an earlier one. It is void as soon
// as one of its requests is; they are sent alone then.
func BeginCoalesced(call *redisconn.Cmd) {
	*call = redisconn.Cmd{Script: Plain.Coalesced, Keys: call.Keys[:0], Args: append(call.Args[:0], "")}
}

// Coalesce adds a request to a coalesced call. It does not need the holders, the last key,
// and a release does not need the fence high-water mark before it.
func Coalesce(call *redisconn.Cmd, r *Request) {
	keys, ttl := 4, r.TTL
	if r.Joins == JoinsRelease {
		keys, ttl = 3, "0"
	}
	if r.Until > 0 && isEarlier(r.Args[r.Until], call.Args[0]) {
		call.Args[0] = r.Args[r.Until]
	}
	call.Keys = append(call.Keys, r.Keys[:keys]...)
	call.Args = append(call.Args, r.Token, ttl)
}

// isEarlier reports whether a request is void before another one. Their times are decimal
// numbers, or "" for never.
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

// ParseCoalesced reads the reply to a coalesced call of n requests.
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

// Of returns the reply to the i-th request, as the request alone would get it. It reports
// false if the request has to be sent alone.
func (c CoalescedReply) Of(i int, r *Request) (reply redisconn.Reply, served bool) {
	switch status := c.statuses[i]; {
	case status < '1':
		return redisconn.Reply{}, false
	case r.Joins == JoinsRelease:
		return redisconn.Reply{Value: int64(1)}, true
	case status == '1':
		return redisconn.Reply{Value: c.now}, true // avoids an allocation
	default:
		return redisconn.Reply{Value: c.micros + int64(status-'1')}, true
	}
}
