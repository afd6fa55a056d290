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

// What the server sends is checked before it is believed: a proxy or another
// implementation may answer something else.

var errVoid = errors.New("the request came too late for the server's clock, again and again: its clock may be running wild")

// errEarly is of a second try that was answered before the first one became void.
var errEarly = errors.New("the first try had no answer, and may yet arrive: the server's clock was set back")

// errTwice leaves it to the caller, who knows whether it held, what that means.
var errTwice = errors.New("not held at the second asking; the first had no answer, and may have done it")

// unknown makes of a server's refusal an error that leaves open what an earlier try has
// done, which the server did not refuse.
func unknown(err error) error {
	var server ServerError
	if errors.As(err, &server) || errors.Is(err, ErrClosed) {
		return errors.New("after a try whose outcome is not known: " + err.Error())
	}
	return err
}

func unexpected(v any) error {
	text := fmt.Sprintf("%v", v)
	return fmt.Errorf("unexpected reply %.100q", text)
}

// passing are the codes of errors that may be over soon. The last four are what a
// failover, or a slot on its way, looks like.
var passing = []string{"LOADING", "TRYAGAIN", "CLUSTERDOWN", "MASTERDOWN", "BUSY", "READONLY", "MOVED", "ASK", "NOREPLICAS"}

// fail tells a failure in the words of dibs. A server that answered with an error
// has done nothing; else the outcome is unknown.
func fail(op, name string, err error) error {
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
		// Redis looks at the length of a request before it looks at the user.
		err = ServerError("NOAUTH Authentication required: " + text)
	}
	if strings.Contains(text, "WRONGTYPE") {
		return fmt.Errorf("%w: %s %q: %w", driver.ErrWrongType, op, name, err)
	}
	return &driver.UnavailableError{Op: op, Name: name, Cause: err, Refused: !server.transient()}
}

// transient reports whether it makes sense to ask again soon. What a script has caught
// and raised again has ERR before its code; before Redis 7 an error inside a script is
// told in the middle of another.
func (e ServerError) transient() bool {
	text := string(e)
	bare := strings.TrimPrefix(text, "ERR ")
	return slices.ContainsFunc(passing, func(code string) bool {
		return strings.HasPrefix(bare, code) || strings.Contains(text, "-"+code+" ")
	})
}

// onItsWay reports whether a slot is being moved to another server.
func slotIsMigrating(err error) bool {
	var server ServerError
	return errors.As(err, &server) && strings.HasPrefix(string(server), "TRYAGAIN")
}

// parseAnswer reads acquire's reply to one claim: the fence, if it is held and that
// is the server's time, or the server's time and an answer.
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
		answer = r.waiting()
		if len(r.fields) > 0 {
			r.int() // see takenName
		}
		if !r.bad && len(r.fields) == 0 {
			return answer, false, nil
		}
	}
	return driver.AcquireReply{}, false, unexpected(v)
}

// waiting reads what is told to a claim that does not hold.
func (r *reader) waiting() (a driver.AcquireReply) {
	a.Ticket = r.uint()
	a.Position = int(r.int())
	a.Remaining = remaining(r.int())
	a.Holder = r.string()
	r.must(a.Position >= 0)
	return a
}

// takenName returns which of a claim's names is taken: an answer to a claim on several
// ends with its number, from 1.
func takenName(c driver.AcquireRequest, v any) string {
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

// parseMarks reads extend's reply: a mark for each of so many.
func parseMarks(v any, n int) (marks string, ok bool) {
	list, _ := v.([]any)
	in := reader{fields: list}
	in.int() // the time
	marks = in.string()
	return marks, !in.bad && len(marks) == n
}

// serverTime finds the server's time in a reply: to each script but release, unless
// that came too late.
func serverTime(r Reply) (int64, bool) {
	switch v := r.Value.(type) {
	case int64:
		return v, v > 1 // release answers 0 or 1
	case []any:
		if len(v) > 0 {
			now, ok := v[0].(int64)
			return now, ok
		}
	}
	return 0, false
}

// remaining reads a PTTL: −1 never expires, −2 is not there.
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

// parseState reads inspect's reply.
func parseState(name string, v any) (driver.State, error) {
	list, _ := v.([]any)
	r := reader{fields: list}
	now := r.int()
	state := driver.State{Name: name, Fence: r.uint(), Holding: int(r.int()), Waiting: int(r.int())}
	for range r.int() {
		h := driver.Holder{Token: r.string(), Remaining: remaining(r.int()), Weight: int(r.uint()), Fence: r.uint()}
		h.Label = driver.LabelOf(h.Token)
		if r.bad {
			return driver.State{}, unexpected(v)
		}
		state.Holders = append(state.Holders, h)
	}
	for len(r.fields) >= 3 && !r.bad {
		place, ticket := r.string(), int64(r.uint())
		seen := ticket
		if sign := r.string(); sign != "" {
			seen, _ = strconv.ParseInt(sign, 10, 64)
		}
		if now-seen >= driver.WaiterTTL.Microseconds() {
			state.Waiting-- // dead, and not yet found by whoever serves
			continue
		}
		token, ok := entryToken(place)
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

// placeToken returns the token of a place: what follows four fields.
func entryToken(place string) (string, bool) {
	parts := strings.SplitN(place, " ", 5)
	if len(parts) != 5 {
		return "", false
	}
	return parts[4], true
}

// parseMessage reads a push: fence, ticket, origin, token. A fence of zero asks the waiter
// to ask again; with a ticket, that is the fence of a holding of the token which was
// broken.
func (s *Store) parseMessage(text string) (driver.Event, bool) {
	parts := strings.SplitN(text, " ", 4)
	if len(parts) != 4 || parts[3] == "" {
		return driver.Event{}, false
	}
	fence, err1 := strconv.ParseUint(parts[0], 10, 64)
	ticket, err2 := strconv.ParseUint(parts[1], 10, 64)
	sent, node, err3 := origin(parts[2])
	if errors.Join(err1, err2, err3) != nil {
		return driver.Event{}, false
	}
	if fence == 0 && ticket != 0 {
		return driver.Event{Kind: driver.EventRevoked, Token: parts[3], Fence: ticket}, true
	}
	if fence == 0 || s.copies != nil { // asking again is what waits for the replicas
		return driver.Event{Kind: driver.EventRetry, Token: parts[3]}, true
	}
	e := driver.Event{Kind: driver.EventGranted, Token: parts[3], Fence: fence, Ticket: ticket, Node: node}
	if s.sharded {
		return e, true // nobody tells by whose clock it was sent
	}
	if now := s.slots.one().clock.earliest(time.Now()); sent > 0 && now > sent {
		e.Age = time.Duration(now-sent) * time.Microsecond
	}
	return e, true
}

// origin reads when a push was sent, in µs, or to who came with a ballot by which store.
func origin(field string) (sent int64, node string, err error) {
	if node, voted := strings.CutPrefix(field, "@"); voted {
		return 0, node, nil
	}
	sent, err = strconv.ParseInt(field, 10, 64)
	return sent, "", err
}

// A reader takes typed fields from a reply. The first of another type makes it
// bad, and the rest zero.
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
