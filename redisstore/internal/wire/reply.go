package wire

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/driver/ownertoken"
	"github.com/dibslock/dibs/redisstore/internal/foreign"
	"github.com/dibslock/dibs/redisstore/redisconn"
)

// Replies are checked before use: a proxy or another Redis implementation may send anything.

// ParseAcquire reads acquire's reply to a single request. It is the fence as an integer, if the
// request holds and the fence equals the server's time. Otherwise it is the server's time and an
// answer.
func ParseAcquire(v any) (answer driver.AcquireReply, void bool, err error) {
	if fence, ok := v.(int64); ok && fence > 0 {
		return driver.AcquireReply{Held: true, Fence: uint64(fence)}, false, nil
	}
	list, ok := v.([]any)
	if !ok || len(list) != 2 {
		return answer, false, redisconn.Unexpected(v)
	}
	switch a := list[1].(type) {
	case int64:
		if a == 0 {
			return answer, true, nil
		}
	case string:
		answer.Fence, err = strconv.ParseUint(a, 10, 64)
		if answer.Held = answer.Fence > 0; err == nil && answer.Held {
			return answer, false, nil
		}
	case []any:
		r := reader{fields: a}
		answer = r.waitingReply()
		if len(r.fields) > 0 {
			r.int() // see BusyName and MustPoll
		}
		if len(r.fields) > 0 {
			answer.Fence = r.uint()
		}
		if !r.bad && len(r.fields) == 0 {
			return answer, false, nil
		}
	}
	return driver.AcquireReply{}, false, redisconn.Unexpected(v)
}

// ParseVote reads vote's reply. An abstention is an error.
func ParseVote(r driver.AcquireRequest, v any) (answer driver.AcquireReply, void bool, err error) {
	list, _ := v.([]any)
	if len(list) == 2 {
		n, ok := list[1].(int64)
		if ok && n == 0 {
			return answer, true, nil
		}
	}
	if len(list) != 3 {
		return answer, false, redisconn.Unexpected(v)
	}
	in := reader{fields: list}
	in.int()
	node := in.string()
	switch a := in.next().(type) {
	case int64:
		if a > 0 {
			return answer, false, &driver.UnavailableError{
				Op: "acquire", Name: r.Name, Refused: true, Cause: &driver.RecoveringError{Node: node, Remaining: time.Duration(a) * time.Microsecond},
			}
		}
		in.bad = true
	case []any:
		fields := reader{fields: a}
		answer = fields.waitingReply()
		answer.Fence = fields.uint()
		in.must(!fields.bad && len(fields.fields) == 0)
	case string:
		answer.Fence, err = strconv.ParseUint(a, 10, 64)
		answer.Held = true
		in.must(err == nil && answer.Fence > 0)
	default:
		in.bad = true
	}
	if answer.Vote.Node = node; in.bad || node == "" {
		return driver.AcquireReply{}, false, redisconn.Unexpected(v)
	}
	return answer, false, nil
}

// waitingReply reads the answer to a request that does not hold.
func (r *reader) waitingReply() (a driver.AcquireReply) {
	a.Ticket = r.uint()
	a.Position = int(r.int())
	a.Remaining = remaining(r.int())
	holder := parseValue(r.string())
	a.Holder, a.Reserved = holder.token, holder.reserved
	r.must(a.Position >= 0)
	return a
}

// BusyName returns the requested name that another token holds. The answer to a request for several
// names ends with an index, from 1.
func BusyName(r driver.AcquireRequest, v any) string {
	list, _ := v.([]any)
	if len(list) == 2 && len(r.With) > 0 {
		fields, _ := list[1].([]any)
		if len(fields) == 5 {
			if n, _ := fields[4].(int64); n > 1 && int(n) <= 1+len(r.With) {
				return r.With[n-2]
			}
		}
	}
	return r.Name
}

// MustPoll reports whether this waiter should poll because nobody will notify it: the holder is
// another library's client, or the name stays free for such clients. guessed means that only the
// token's form suggests it. The reply to the first request for a name does not reveal whose token
// it is: a dibs user may have chosen it.
func MustPoll(r driver.AcquireRequest, answer driver.AcquireReply, v any) (must, guessed bool) {
	if answer.Position != 1 {
		return false, false
	}
	list, _ := v.([]any)
	fields, _ := list[len(list)-1].([]any)
	if len(r.With) == 0 && len(fields) >= 5 {
		n, _ := fields[4].(int64)
		return n == 1, false
	}
	must = answer.Holder != "" && foreign.ClientOf(answer.Holder) == ""
	return must, must && len(r.With) == 0
}

// ParseStatuses reads extend's reply: n status characters.
func ParseStatuses(v any, n int) (marks string, ok bool) {
	list, _ := v.([]any)
	in := reader{fields: list}
	in.int() // the server's time
	marks = in.string()
	return marks, !in.bad && len(marks) == n
}

// ServerTime finds the server's time in a reply. Each script returns it, except release,
// which returns it only if the request was void.
func ServerTime(r redisconn.Reply) (int64, bool) {
	switch v := r.Value.(type) {
	case int64:
		return v, v > 1 // release returns 0 or 1
	case []any:
		if len(v) > 0 {
			now, ok := v[0].(int64)
			return now, ok
		}
	}
	return 0, false
}

// remaining converts a PTTL: −1 means that the key never expires, −2 that it does not exist.
func remaining(ms int64) time.Duration {
	const most = int64(1<<63-1) / int64(time.Millisecond)
	switch {
	case ms == -1:
		return -1
	case ms < 0:
		return 0
	}
	return time.Duration(min(ms, most)) * time.Millisecond
}

// An Inspected is inspect's reply for a single name.
type Inspected struct {
	State driver.State
	Err   error // from the server: a key may have another type
}

// ParseStates reads inspect's reply, with at most this many holders and waiters for each name. The
// reply covers one or more of the names, in order. The others are missing.
func ParseStates(names []string, most int, v any) (all []Inspected, err error) {
	list, _ := v.([]any)
	r := reader{fields: list}
	now := r.int()
	for len(r.fields) > 0 && !r.bad && len(all) < len(names) {
		all = append(all, r.inspected(names[len(all)], now, most))
	}
	if r.bad || len(r.fields) > 0 || len(all) == 0 {
		return nil, redisconn.Unexpected(v)
	}
	return all, nil
}

func (r *reader) inspected(name string, now int64, most int) Inspected {
	if mark, failed := r.fields[0].(int64); failed && mark == -1 {
		r.next()
		return Inspected{Err: redisconn.ServerError(r.string())}
	}
	state := driver.State{Name: name, Fence: r.uint(), Holding: int(r.int()), Waiting: int(r.int())}
	r.must(state.Holding >= 0 && state.Waiting >= 0)
	for n := min(state.Holding, most); n > 0 && !r.bad; n-- {
		state.Holders = append(state.Holders, r.holder())
	}
	for n := min(state.Waiting, most); n > 0 && !r.bad; n-- {
		waiter, alive := r.waiter(now)
		if !alive {
			state.Waiting-- // a dead waiter that no script has removed yet
			continue
		}
		state.Waiters = append(state.Waiters, waiter)
	}
	return Inspected{State: state}
}

func (r *reader) holder() driver.Holder {
	holder := parseValue(r.string())
	left, weight := remaining(r.int()), int(r.uint())
	h := ownertoken.NewHolder(holder.token, weight)
	h.Reserved, h.Remaining, h.Fence = holder.reserved, left, r.uint()
	return h
}

func (r *reader) waiter(now int64) (w driver.Waiter, alive bool) {
	entry, ticket := r.string(), int64(r.uint())
	seen := ticket
	if heartbeat := r.string(); heartbeat != "" {
		seen, _ = strconv.ParseInt(heartbeat, 10, 64)
	}
	if now-seen >= driver.WaiterTTL.Microseconds() {
		return w, false
	}
	w, ok := parseEntry(entry)
	r.must(ok)
	w.Waited = time.Duration(max(now-ticket, 0)) * time.Microsecond
	return w, true
}

// parseEntry reads a queue entry: "seq ttl weight/limit client token". A mark may follow the
// limit: see queue.lua.
func parseEntry(entry string) (driver.Waiter, bool) {
	parts := strings.SplitN(entry, " ", 5)
	if len(parts) != 5 {
		return driver.Waiter{}, false
	}
	weight, limit, ok := strings.Cut(strings.TrimRight(parts[2], "+*"), "/")
	w, err1 := strconv.Atoi(weight)
	l, err2 := strconv.Atoi(limit)
	return ownertoken.NewWaiter(parts[4], w, l), ok && err1 == nil && err2 == nil
}

// A Message is a notification.
type Message struct {
	Event driver.Event
	Sent  int64 // when it was sent, in µs on the server's clock; 0 if unknown
}

// ParseMessage reads a notification: fence, ticket, origin, token. A zero fence asks the waiter to
// retry. The origin "!" means that another request waits for the token's name. A zero fence with a
// ticket means that this token's lease with that fence was revoked. The reason can follow after a
// line break.
func ParseMessage(text string) (Message, bool) {
	parts := strings.SplitN(text, " ", 4)
	if len(parts) != 4 || parts[3] == "" {
		return Message{}, false
	}
	if parts[2] == wantedOrigin {
		return Message{Event: driver.Event{Kind: driver.EventWanted, Token: parts[3]}}, parts[0] == "0" && parts[1] == "0"
	}
	fence, fences, err1 := parseFences(parts[0])
	ticket, err2 := strconv.ParseUint(parts[1], 10, 64)
	sent, node, err3 := parseOrigin(parts[2])
	switch {
	case errors.Join(err1, err2, err3) != nil:
		return Message{}, false
	case fence == 0 && ticket != 0:
		token, reason, _ := strings.Cut(parts[3], "\n")
		return Message{Event: driver.Event{Kind: driver.EventRevoked, Token: token, Fence: ticket, Reason: reason}}, token != ""
	case fence == 0:
		return Message{Event: driver.Event{Kind: driver.EventRetry, Token: parts[3]}}, true
	}
	return Message{driver.Event{Kind: driver.EventGranted, Token: parts[3], Fence: fence, Fences: fences, Ticket: ticket, Vote: driver.VoteReply{Node: node}}, sent}, true
}

// parseFences reads a grant's fence, and the number of fences if given.
func parseFences(field string) (fence, fences uint64, err error) {
	first, rest, several := strings.Cut(field, "/")
	fence, err = strconv.ParseUint(first, 10, 64)
	if err == nil && several {
		fences, err = strconv.ParseUint(rest, 10, 64)
	}
	if fences > fence {
		err = errors.New("more fences than numbers")
	}
	return fence, fences, err
}

// wantedOrigin marks a notification about a waiting request: see notify_wanted.lua.
const wantedOrigin = "!"

// parseOrigin reads when a notification was sent, in µs; for a vote request, it reads the id of the
// sending store.
func parseOrigin(field string) (sent int64, node string, err error) {
	if node, voted := strings.CutPrefix(field, "@"); voted {
		return 0, node, nil
	}
	sent, err = strconv.ParseInt(field, 10, 64)
	return sent, "", err
}

// A reader reads typed fields from a reply. A field with another type makes it bad; after that it
// returns zero values.
type reader struct {
	fields []any
	bad    bool
}

func (r *reader) must(ok bool) { r.bad = r.bad || !ok }

func (r *reader) next() any {
	if len(r.fields) == 0 {
		r.bad = true
		return nil
	}
	v := r.fields[0]
	r.fields = r.fields[1:]
	return v
}

func (r *reader) int() int64 {
	n, ok := r.next().(int64)
	r.must(ok)
	return n
}

func (r *reader) string() string {
	s, ok := r.next().(string)
	r.must(ok)
	return s
}

func (r *reader) uint() uint64 {
	n, err := strconv.ParseUint(r.string(), 10, 64)
	r.must(err == nil)
	return n
}

// ParseFlag reads the reply of revoke and wanted: yes or no.
func ParseFlag(v any) (set bool, err error) {
	list, _ := v.([]any)
	in := reader{fields: list}
	in.int() // the server's time
	n := in.int()
	if in.bad || len(in.fields) > 0 || n != 0 && n != 1 {
		return false, redisconn.Unexpected(v)
	}
	return n == 1, nil
}

// ParseFence reads fences' reply: the last fence, or zero.
func ParseFence(v any) (uint64, error) {
	n, ok := v.(int64)
	if !ok || n < 0 {
		return 0, redisconn.Unexpected(v)
	}
	return uint64(n), nil
}

// ParseNumSub reads the reply to PUBSUB NUMSUB for a channel.
func ParseNumSub(v any) (subscribers int64, err error) {
	list, _ := v.([]any)
	in := reader{fields: list}
	in.string()
	n := in.int()
	if in.bad || len(in.fields) > 0 {
		return 0, redisconn.Unexpected(v)
	}
	return n, nil
}

// ParseTime reads the reply to TIME.
func ParseTime(v any) (seconds, micros uint64, ok bool) {
	list, _ := v.([]any)
	in := reader{fields: list}
	seconds, micros = in.uint(), in.uint()
	return seconds, micros, !in.bad
}

// ParseInfo reads the "name:value" lines in an INFO reply.
func ParseInfo(info string) map[string]string {
	fields := make(map[string]string)
	for line := range strings.Lines(info) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			fields[name] = value
		}
	}
	return fields
}

// ParsePairs reads a list of names and values, which some clients return as a map.
func ParsePairs(v any) map[string]string {
	list, _ := v.([]any)
	if byName, ok := v.(map[any]any); ok {
		for name, value := range byName {
			list = append(list, name, value)
		}
	}
	read := make(map[string]string)
	for i := 0; i+1 < len(list); i += 2 {
		read[fmt.Sprint(list[i])] = fmt.Sprint(list[i+1])
	}
	return read
}

// StatusShared is the status for a shared lock in extend.lua and extend_key.lua: the holders key
// decides.
const StatusShared = 's'
