package redisstore

import "errors"

// Locks that nobody else wants, taken or given back by many at once, are the usual load
// of a busy process. Most of what each costs a server is the call of its script, so the
// requests that have gathered in the pump go as one call. One that turns out not to be
// so usual is left alone by it, and asked again by itself.

// apart is how many batches go by themselves, after one of which most were not usual.
const apart = 64

// usual tells of a call whether it can go together with others.
func (c *call) coalescable() bool { return c.first.coalescable && len(c.more) == 0 }

// join puts what is usual together.
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

// joint makes one call of the batch's parts.
func (b *batch) coalescedCall() call {
	// Where the keys of a request are, and the arguments of its script after them.
	// It needs no holders, which are the last of the keys.
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

// share gives each part of a joint call its answer, and returns those that have to ask
// by themselves: all of them, if the server has refused the call because of one.
func (c *call) distributeCoalesced(r Reply) (left []call) {
	var refusal ServerError
	if errors.As(r.Err, &refusal) {
		return c.parts
	}
	list, _ := r.Value.([]any)
	in := reader{fields: list}
	now, marks := in.int(), in.string()
	if r.Err == nil && (in.bad || len(in.fields) > 0 || len(marks) != len(c.parts)) {
		r = Reply{Err: unexpected(r.Value)}
	}
	for i, part := range c.parts {
		switch {
		case r.Err != nil:
			part.first.reply = r
		case marks[i] < '1':
			left = append(left, part)
		case part.script == releaseScript:
			part.first.reply = Reply{Value: int64(1)}
		case marks[i] == '1':
			part.first.reply = Reply{Value: list[0]} // already on the heap
		default:
			part.first.reply = Reply{Value: now + int64(marks[i]-'1')}
		}
	}
	return left
}
