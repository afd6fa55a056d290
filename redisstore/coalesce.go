package redisstore

import "errors"

// The usual load of a busy process is uncontended locks, acquired and released by many
// goroutines. Most of the server's cost is that of a script call, so queued requests of
// this kind are sent as one call of coalesced.lua. It leaves a contended request
// unchanged, and that request is sent again alone.

// coalescePause is how many batches are not coalesced, after a batch in which most
// requests were contended.
const coalescePause = 64

// coalescable reports whether a call can be coalesced with others.
func (c *call) coalescable() bool { return c.first.coalescable && len(c.more) == 0 }

// coalesce replaces the coalescable calls by one.
func (b *batch) coalesce() {
	n := 0
	for i := range b.calls {
		if b.calls[i].coalescable() {
			n++
		}
	}
	if n < 2 {
		return
	}
	rest := b.calls[:0]
	b.parts = b.parts[:0]
	for _, c := range b.calls {
		if c.coalescable() {
			b.parts = append(b.parts, c)
		} else {
			rest = append(rest, c)
		}
	}
	clear(b.calls[len(rest):])
	rest = append(rest, b.coalescedCall())
	b.calls = rest
}

// coalescedCall makes one call of the batch's parts.
func (b *batch) coalescedCall() call {
	// Offsets of the keys in a request, and of its arguments. The holders are the last
	// key, and coalesced.lua does not need them.
	const keys, holders, args = 3, 7, 8
	b.cmd = append(b.cmd[:0], "EVALSHA", coalescedScript.sha, count(len(b.parts)*(holders-keys)))
	for i := range b.parts {
		b.cmd = append(b.cmd, b.parts[i].cmd[keys:holders]...)
	}
	for i := range b.parts {
		c := &b.parts[i]
		if c.script == acquireScript { // check, token, TTL, until, …
			b.cmd = append(b.cmd, c.cmd[args+1:args+4]...)
		} else { // token, fence, until, …
			b.cmd = append(b.cmd, c.cmd[args], "0", c.cmd[args+2])
		}
	}
	return call{script: coalescedScript, cmd: b.cmd, parts: b.parts}
}

// distributeCoalesced gives each part of a coalesced call its answer. It returns the
// parts that have to be sent alone: all of them if the server refused the call, since one
// part may be the reason.
func (c *call) distributeCoalesced(r Reply) (left []call) {
	var refusal ServerError
	if errors.As(r.Err, &refusal) {
		return c.parts
	}
	list, _ := r.Value.([]any)
	in := reader{fields: list}
	now, statuses := in.int(), in.string()
	if r.Err == nil && (in.bad || len(in.fields) > 0 || len(statuses) != len(c.parts)) {
		r = Reply{Err: unexpected(r.Value)}
	}
	for i, part := range c.parts {
		switch {
		case r.Err != nil:
			part.first.reply = r
		case statuses[i] < '1':
			left = append(left, part)
		case part.script == releaseScript:
			part.first.reply = Reply{Value: int64(1)}
		case statuses[i] == '1':
			part.first.reply = Reply{Value: list[0]} // avoids an allocation
		default:
			part.first.reply = Reply{Value: now + int64(statuses[i]-'1')}
		}
	}
	return left
}
