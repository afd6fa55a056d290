package redisstore

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dibslock/dibs/driver"
)

// Replies are checked before use: a proxy or another implementation of Redis may send
// something else.

var errExpired = errors.New("request expired on arrival 3 times: the server's clock may be unstable")

// errFirstTryPending: the reply to a second try came before the first try became void.
var errFirstTryPending = errors.New("outcome unknown: the first attempt had no reply and may still arrive: the server's clock was set back")

// errOutcomeUnknown leaves the interpretation to the caller, which knows whether it held
// the lock.
var errOutcomeUnknown = errors.New("outcome unknown: the first attempt timed out, and the retry found the lock not held")

// unknownOutcome replaces a server's refusal of a retry by an error that leaves the
// outcome open: the server refused the retry only, not the first try.
func unknownOutcome(err error) error {
	var server ServerError
	if errors.As(err, &server) || errors.Is(err, ErrClosed) {
		return errors.New("outcome unknown: an earlier attempt had no reply, and the retry failed: " + err.Error())
	}
	return err
}

func unexpected(v any) error {
	text := fmt.Sprintf("%v", v)
	return fmt.Errorf("unexpected reply %.100q", text)
}

// transientCodes are the codes of errors that may be over soon. The last four mean a
// failover or a slot migration.
var transientCodes = []string{"LOADING", "TRYAGAIN", "CLUSTERDOWN", "MASTERDOWN", "BUSY", "READONLY", "MOVED", "ASK", "NOREPLICAS"}

// wrapError turns err into a driver error. A server that replied with an error has done
// nothing; otherwise the outcome is unknown.
func wrapError(op, name string, err error) error {
	if errors.Is(err, driver.ErrInvalid) {
		return fmt.Errorf("%s %q: %w", op, name, err)
	}
	var server ServerError
	if !errors.As(err, &server) {
		unsent := errors.Is(err, ErrClosed)
		return &driver.UnavailableError{Op: op, Name: name, Cause: err, Refused: unsent}
	}
	text := string(server)
	if strings.HasPrefix(text, "ERR Protocol error: unauthenticated") {
		// Redis checks the length of a request before it checks the user.
		err = ServerError("NOAUTH Authentication required: " + text)
	}
	if strings.Contains(text, "WRONGTYPE") {
		return fmt.Errorf("%w: %s %q: %w", driver.ErrWrongType, op, name, err)
	}
	return &driver.UnavailableError{Op: op, Name: name, Cause: err, Refused: !server.transient()}
}

// transient reports whether a retry may succeed soon. An error that a script has caught
// and raised again has ERR before its code. Before Redis 7, an error inside a script is
// in the middle of another error's text.
func (e ServerError) transient() bool {
	text := string(e)
	bare := strings.TrimPrefix(text, "ERR ")
	return slices.ContainsFunc(transientCodes, func(code string) bool {
		return strings.HasPrefix(bare, code) || strings.Contains(text, "-"+code+" ")
	})
}

// slotIsMigrating reports whether a slot is being moved to another server.
func slotIsMigrating(err error) bool {
	var server ServerError
	return errors.As(err, &server) && strings.HasPrefix(string(server), "TRYAGAIN")
}

// parseAcquireReply reads acquire's reply to one request: the fence as an integer, if the
// request holds and the fence is the server's time; else the server's time and an answer.
func parseAcquireReply(v any) (answer driver.AcquireReply, void bool, err error) {
	if fence, ok := v.(int64); ok && fence > 0 {
		return driver.AcquireReply{Held: true, Fence: uint64(fence)}, false, nil
	}
	list, ok := v.([]any)
	if !ok || len(list) != 2 {
		return answer, false, unexpected(v)
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
			r.int() // see takenName
		}
		if !r.bad && len(r.fields) == 0 {
			return answer, false, nil
		}
	}
	return driver.AcquireReply{}, false, unexpected(v)
}

// waitingReply reads the answer to a request that does not hold.
func (r *reader) waitingReply() (a driver.AcquireReply) {
	a.Ticket = r.uint()
	a.Position = int(r.int())
	a.Remaining = remaining(r.int())
	a.Holder, a.Reserved = cutReserved(r.string())
	r.must(a.Position >= 0)
	return a
}

// busyName returns which of a request's names another token holds. The answer to a
// request for several names ends with an index, from 1.
func busyName(c driver.AcquireRequest, v any) string {
	list, _ := v.([]any)
	if len(list) == 2 && len(c.With) > 0 {
		fields, _ := list[1].([]any)
		if len(fields) == 5 {
			if n, _ := fields[4].(int64); n > 1 && int(n) <= 1+len(c.With) {
				return c.With[n-2]
			}
		}
	}
	return c.Name
}

// parseStatuses reads extend's reply: n status characters.
func parseStatuses(v any, n int) (marks string, ok bool) {
	list, _ := v.([]any)
	in := reader{fields: list}
	in.int() // the server's time
	marks = in.string()
	return marks, !in.bad && len(marks) == n
}

// serverTime finds the server's time in a reply. Each script returns it, except release,
// which returns it only if the request was void.
func serverTime(r Reply) (int64, bool) {
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

// remaining converts a PTTL: −1 means that the key never expires, −2 that it does not
// exist.
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

// reservedSuffix follows the token of a lease that was released while its name stays
// reserved, so that a renewal in flight cannot extend it: see release.lua.
const reservedSuffix = " reserved"

// cutReserved divides a stored token into the owner token and whether it only reserves
// the name.
func cutReserved(stored string) (token string, reserved bool) {
	return strings.CutSuffix(stored, reservedSuffix)
}

// parseState reads inspect's reply.
func parseState(name string, v any) (driver.State, error) {
	list, _ := v.([]any)
	r := reader{fields: list}
	now := r.int()
	state := driver.State{Name: name, Fence: r.uint(), Holding: int(r.int()), Waiting: int(r.int())}
	for range r.int() {
		token, reserved := cutReserved(r.string())
		h := driver.Holder{Token: token, Reserved: reserved, Remaining: remaining(r.int()), Weight: int(r.uint()), Fence: r.uint()}
		h.Label = driver.LabelOf(h.Token)
		if r.bad {
			return driver.State{}, unexpected(v)
		}
		state.Holders = append(state.Holders, h)
	}
	for len(r.fields) >= 3 && !r.bad {
		entry, ticket := r.string(), int64(r.uint())
		seen := ticket
		if heartbeat := r.string(); heartbeat != "" {
			seen, _ = strconv.ParseInt(heartbeat, 10, 64)
		}
		if now-seen >= driver.WaiterTTL.Microseconds() {
			state.Waiting-- // a dead waiter that no script has removed yet
			continue
		}
		token, ok := entryToken(entry)
		r.must(ok)
		state.Waiters = append(state.Waiters, driver.Waiter{
			Token: token, Label: driver.LabelOf(token), Waited: time.Duration(max(now-ticket, 0)) * time.Microsecond,
		})
	}
	if r.bad || len(r.fields) > 0 {
		return driver.State{}, unexpected(v)
	}
	return state, nil
}

// entryToken returns the token of a queue entry: the text after the first four fields.
func entryToken(entry string) (string, bool) {
	parts := strings.SplitN(entry, " ", 5)
	if len(parts) != 5 {
		return "", false
	}
	return parts[4], true
}

// parseMessage reads a notification: fence, ticket, origin, token. A fence of zero tells
// the waiter to retry. With a fence of zero and a ticket, the ticket is the fence of a
// lease of this token that was revoked. The reason may follow after a line break.
func (s *Store) parseMessage(text string) (driver.Event, bool) {
	parts := strings.SplitN(text, " ", 4)
	if len(parts) != 4 || parts[3] == "" {
		return driver.Event{}, false
	}
	fence, err1 := strconv.ParseUint(parts[0], 10, 64)
	ticket, err2 := strconv.ParseUint(parts[1], 10, 64)
	sent, node, err3 := parseOrigin(parts[2])
	if errors.Join(err1, err2, err3) != nil {
		return driver.Event{}, false
	}
	if fence == 0 && ticket != 0 {
		token, reason, _ := strings.Cut(parts[3], "\n")
		return driver.Event{Kind: driver.EventRevoked, Token: token, Fence: ticket, Reason: reason}, true
	}
	if fence == 0 || s.replicas != nil { // a retry waits for the replicas
		return driver.Event{Kind: driver.EventRetry, Token: parts[3]}, true
	}
	e := driver.Event{Kind: driver.EventGranted, Token: parts[3], Fence: fence, Ticket: ticket, Node: node}
	if s.sharded {
		return e, true // the message does not say whose clock sent is from
	}
	if now := s.slots.single().clock.earliest(time.Now()); sent > 0 && now > sent {
		e.Age = time.Duration(now-sent) * time.Microsecond
	}
	return e, true
}

// parseOrigin reads when a notification was sent, in µs; for a vote request, the id of
// the store that sent it.
func parseOrigin(field string) (sent int64, node string, err error) {
	if node, voted := strings.CutPrefix(field, "@"); voted {
		return 0, node, nil
	}
	sent, err = strconv.ParseInt(field, 10, 64)
	return sent, "", err
}

// A reader reads typed fields of a reply. The first field of another type makes it bad;
// from then on it returns zero values.
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

func (r *reader) list() []any {
	l, ok := r.next().([]any)
	r.must(ok)
	return l
}

func (r *reader) uint() uint64 {
	n, err := strconv.ParseUint(r.string(), 10, 64)
	r.must(err == nil)
	return n
}
