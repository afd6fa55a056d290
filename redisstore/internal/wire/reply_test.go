package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/driver/ownertoken"
	"github.com/dibslock/dibs/redisstore/redisconn"
)

// now is a server's time in µs.
const now int64 = 1_700_000_000_000_000

func TestParseAcquireReply(t *testing.T) {
	held := func(fence uint64) driver.AcquireReply { return driver.AcquireReply{Held: true, Fence: fence} }
	for _, c := range []struct {
		reply any
		want  driver.AcquireReply
		void  bool
	}{
		{int64(1_700_000_000_000_001), held(1_700_000_000_000_001), false},
		{[]any{now, "7"}, held(7), false},
		{[]any{now, int64(0)}, driver.AcquireReply{}, true},
		{
			[]any{now, []any{"5", int64(3), int64(1500), "h:1:x:9"}},
			driver.AcquireReply{Ticket: 5, Position: 3, Remaining: 1500 * time.Millisecond, Holder: "h:1:x:9"}, false,
		},
		{ // not queued, behind a foreign lock without a TTL
			[]any{now, []any{"0", int64(0), int64(-1), "x"}}, driver.AcquireReply{Remaining: -1, Holder: "x"}, false,
		},
		{ // between two owners
			[]any{now, []any{"5", int64(1), int64(-2), ""}}, driver.AcquireReply{Ticket: 5, Position: 1}, false,
		},
	} {
		have, void, err := ParseAcquire(c.reply)
		if err != nil || void != c.void || have != c.want {
			t.Errorf("%v: %+v, %v, %v; want %+v, %v", c.reply, have, void, err, c.want, c.void)
		}
	}
	for _, reply := range []any{
		nil, int64(-1), int64(0), "1 2", "", " ", "1", "1 ", " 1", "0 1", "-1 1", "1 x", "x 1", "1 2 3", "1.5 2", "OK", "9223372036854775808 1",
		[]any{}, []any{now}, []any{now, nil}, []any{now, int64(1)}, []any{now, int64(-1)}, []any{now, "0"}, []any{now, "-1"},
		[]any{now, ""}, []any{now, "1 2"}, []any{now, "18446744073709551616"}, []any{now, "7", "8"}, []any{"7"},
		[]any{now, []any{}}, []any{now, []any{"5", int64(1), int64(1)}}, []any{now, []any{"5", int64(1), int64(1), "t", "more"}},
		[]any{now, []any{int64(5), int64(1), int64(1), "t"}}, []any{now, []any{"5", "1", int64(1), "t"}},
		[]any{now, []any{"5", int64(-1), int64(1), "t"}}, []any{now, []any{"x", int64(1), int64(1), "t"}},
		[]any{now, []any{"5", int64(1), nil, "t"}}, []any{now, []any{"5", int64(1), int64(1), nil}},
	} {
		if have, void, err := ParseAcquire(reply); err == nil || void || have != (driver.AcquireReply{}) {
			t.Errorf("%v: %+v, %v, %v; want an error and nothing else", reply, have, void, err)
		}
	}
}

func TestServerTime(t *testing.T) {
	for _, c := range []struct {
		reply any
		want  int64
		ok    bool
	}{
		{now, now, true},
		{int64(0), 0, false},
		{[]any{now, "5"}, now, true},
		{[]any{now}, now, true},
		{nil, 0, false},
		{int64(1), 0, false},
		{"10", 0, false}, // extend's reply
		{"x", 0, false},
		{[]any{}, 0, false},
		{[]any{"x"}, 0, false},
	} {
		if have, ok := ServerTime(redisconn.Reply{Value: c.reply}); ok != c.ok || ok && have != c.want {
			t.Errorf("%v: %d, %v; want %d, %v", c.reply, have, ok, c.want, c.ok)
		}
	}
}

func TestRemaining(t *testing.T) {
	for ms, want := range map[int64]time.Duration{
		-1: -1, -2: 0, math.MinInt64: 0, 0: 0, 1: time.Millisecond, 86_400_000: 24 * time.Hour,
		math.MaxInt64: 9_223_372_036_854 * time.Millisecond, // the largest Duration
	} {
		if have := remaining(ms); have != want {
			t.Errorf("remaining(%d) = %v, want %v", ms, have, want)
		}
	}
}

const most = 2 // holders and waiters for each name in test replies

// parseOne reads inspect's reply about a single name.
func parseOne(reply any) (driver.State, error) {
	states, err := ParseStates([]string{"n"}, most, reply)
	if err != nil {
		return driver.State{}, err
	}
	return states[0].State, states[0].Err
}

// fieldsOf returns a state's fields. It omits the nodes, whose errors cannot be compared.
func fieldsOf(s driver.State) []any {
	return []any{s.Name, s.Holders, s.Holding, s.Waiters, s.Waiting, s.Fence, s.Foreign, len(s.Nodes)}
}

func TestParseState(t *testing.T) {
	ticket := func(ago time.Duration) string { return strconv.FormatInt(now-ago.Microseconds(), 10) }
	entry := func(token string) string { return "0000000000000001 5000 2/3* host:1:x " + token }
	state, err := parseOne([]any{
		now, "77", int64(7), int64(4),
		"h:1:x:9:backup", int64(1500), "0", "76", "h:1:y:a", int64(1600), "3", "0",
		entry("a:1:x:1:daily job"), ticket(time.Second), "", // a token chosen by an application can contain a space
		entry("b"), ticket(time.Minute), ticket(time.Second),
	})
	want := driver.State{
		Name: "n",
		Holders: []driver.Holder{
			{Token: "h:1:x:9:backup", Label: "backup", Fence: 76, Remaining: 1500 * time.Millisecond},
			{Token: "h:1:y:a", Weight: 3, Remaining: 1600 * time.Millisecond},
		},
		Holding: 7,
		Waiters: []driver.Waiter{
			{Token: "a:1:x:1:daily job", Label: "daily job", Weight: 2, Limit: 3, Waited: time.Second},
			{Token: "b", Weight: 2, Limit: 3, Waited: time.Minute},
		},
		Waiting: 4,
		Fence:   77,
	}
	if err != nil || !reflect.DeepEqual(fieldsOf(state), fieldsOf(want)) {
		t.Errorf("%+v, %v; want %+v", state, err, want)
	}
	state, err = parseOne([]any{now, "0", int64(0), int64(5), entry("dead"), ticket(5 * time.Second), "", entry("dead too"), ticket(time.Minute), ticket(5 * time.Second)})
	if want := (driver.State{Name: "n", Waiting: 3}); err != nil || !reflect.DeepEqual(fieldsOf(state), fieldsOf(want)) {
		t.Errorf("dead waiters: %+v, %v; want %+v", state, err, want)
	}
	state, err = parseOne([]any{now, "0", int64(0), int64(0)})
	if want := (driver.State{Name: "n"}); err != nil || !reflect.DeepEqual(fieldsOf(state), fieldsOf(want)) {
		t.Errorf("free: %+v, %v; want %+v", state, err, want)
	}
	for _, token := range []string{"x", ""} {
		state, err = parseOne([]any{now, "0", int64(1), int64(0), token, int64(-1), "0", "0"})
		if err != nil || len(state.Holders) != 1 || state.Holders[0].Token != token || state.Holders[0].Remaining >= 0 {
			t.Errorf("a key with %q that never expires: %+v, %v", token, state, err)
		}
	}
	head := func(highwater, holders, waiting any, more ...any) []any {
		return append([]any{now, highwater, holders, waiting}, more...)
	}
	none, one := int64(0), int64(1)
	for _, reply := range []any{
		nil, "", int64(1), []any{}, []any{now}, []any{now, "0", none}, []any{"x", "0", none, none}, head("0", none, none, "more"),
		head(nil, none, none), head(none, none, none), head("-1", none, none), head("0", "0", none), head("0", none, "0"),
		head("0", one, none), head("0", int64(math.MaxInt64), none), head("0", none, int64(math.MaxInt64)), head("0", int64(-1), none), head("0", none, int64(-1)),
		head("0", one, none, "tok", int64(5), "1"), head("0", one, none, nil, int64(5), "1", "1"),
		head("0", one, none, "tok", "5", "1", "1"), head("0", one, none, "tok", int64(5), int64(1), "1"),
		head("0", one, none, "tok", int64(5), "-1", "1"), head("0", one, none, "tok", int64(5), "1", "x"),
		head("0", none, one, entry("a")), head("0", none, one, entry("a"), ticket(0)),
		head("0", none, one, "a", ticket(0), ""), head("0", none, one, entry("a"), "x", ""),
		head("0", none, one, entry("a"), ticket(0), nil),
		head("0", none, one, "1 5000 1 host:1:x a", ticket(0), ""), head("0", none, one, "1 5000 x/1 host:1:x a", ticket(0), ""),
		head("0", none, one, "1 5000 1/ host:1:x a", ticket(0), ""), []any{now, int64(-1)}, []any{now, int64(-1), int64(1)}, []any{now, int64(-2), "error"},
	} {
		if state, err := parseOne(reply); err == nil {
			t.Errorf("%v: %+v, want an error", reply, state)
		}
	}
}

// A reply contains a state or an error for each of the first names, at least for one name.
func TestParseStates(t *testing.T) {
	names := []string{"a", "b", "c"}
	free := []any{"7", int64(0), int64(0)}
	parts := [][]any{free, {int64(-1), "WRONGTYPE no lock"}, free}
	for n := 1; n <= len(names); n++ {
		states, err := ParseStates(names, most, slices.Concat([]any{now}, slices.Concat(parts[:n]...)))
		if err != nil || len(states) != n {
			t.Fatalf("%d states, %v: want %d", len(states), err, n)
		}
		for i, one := range states {
			if failed := one.Err != nil; failed != (i == 1) || !failed && (one.State.Name != names[i] || one.State.Fence != 7) {
				t.Errorf("%d of %d: %+v", i, n, one)
			}
		}
		if n > 1 && !redisconn.HasCode(states[1].Err, "WRONGTYPE") {
			t.Errorf("error %v", states[1].Err)
		}
	}
	if states, err := ParseStates(names[:1], most, slices.Concat([]any{now}, free, free)); err == nil {
		t.Errorf("%+v, want an error: the reply is about two names, not one", states)
	}
}

// A holder's token contains its kind and limit. A waiter's entry contains them, and its limit can
// have a mark.
func TestParseKinds(t *testing.T) {
	const client = "web-7:211:q3ZkAbCdEfGhIjKl"
	token := func(kind driver.Kind, limit int) string {
		return string(ownertoken.AppendKind([]byte(client+":"), kind, limit)) + "abcdefgh"
	}
	for _, c := range []struct {
		kind          driver.Kind
		weight, limit int
		several, vote bool
	}{
		{driver.KindMutex, 1, 1, false, false}, {driver.KindSemaphore, 2, 4, false, true}, {driver.KindReader, 1, driver.Unlimited, false, false},
		{driver.KindWriter, driver.Unlimited, driver.Unlimited, false, true}, {driver.KindMulti, 1, 1, true, false},
	} {
		q := driver.AcquireRequest{Client: client, Token: token(c.kind, c.limit), TTL: time.Minute, Weight: c.weight, Limit: c.limit}
		if c.several {
			q.With = []string{"m"}
		}
		if c.vote {
			q.Vote = new(driver.Vote)
		}
		weight := strconv.Itoa(c.weight)
		if c.weight == c.limit {
			weight = "0"
		}
		state, err := parseOne([]any{now, "0", int64(1), int64(1), q.Token, int64(5), weight, "0", Entry(q), fmt.Sprint(now), ""})
		if err != nil {
			t.Fatal(c.kind, err)
		}
		if h := state.Holders[0]; h.Kind != c.kind || h.Limit != c.limit {
			t.Errorf("holder %+v, want %+v", h, c)
		}
		if w := state.Waiters[0]; w.Kind != c.kind || w.Weight != c.weight || w.Limit != c.limit {
			t.Errorf("waiter %+v, want %+v", w, c)
		}
	}
}

func TestParseMessage(t *testing.T) {
	for text, want := range map[string]driver.Event{
		"7 5 9 tok":    {Kind: driver.EventGranted, Token: "tok", Fence: 7, Ticket: 5},
		"7 5 9 t o k":  {Kind: driver.EventGranted, Token: "t o k", Fence: 7, Ticket: 5},
		"7 5 0 tok":    {Kind: driver.EventGranted, Token: "tok", Fence: 7, Ticket: 5},
		"7/3 5 9 tok":  {Kind: driver.EventGranted, Token: "tok", Fence: 7, Fences: 3, Ticket: 5},
		"7/7 5 9 tok":  {Kind: driver.EventGranted, Token: "tok", Fence: 7, Fences: 7, Ticket: 5},
		"7 5 @ID tok":  {Kind: driver.EventGranted, Token: "tok", Fence: 7, Ticket: 5, Vote: driver.VoteReply{Node: "ID"}},
		"0 0 0 tok":    {Kind: driver.EventRetry, Token: "tok"},
		"0 5 9 tok":    {Kind: driver.EventRevoked, Token: "tok", Fence: 5},
		"7 5 9 路\r\n🔒": {Kind: driver.EventGranted, Token: "路\r\n🔒", Fence: 7, Ticket: 5},
	} {
		if have, ok := ParseMessage(text); !ok || have.Event != want {
			t.Errorf("%q: %+v, %v; want %+v", text, have, ok, want)
		}
	}
	for _, text := range []string{
		"", " ", "   ", "7", "7 5", "7 5 9", "7 5 9 ", "x 5 9 tok", "7 x 9 tok", "7 5 x tok", "7 x @ID tok", "-7 5 9 tok", "7 -5 9 tok",
		"18446744073709551616 5 9 tok", "7.5 5 9 tok", " 7 5 9 tok", "7/ 5 9 tok", "7/8 5 9 tok", "7/x 5 9 tok", "7/-1 5 9 tok", "7/1/1 5 9 tok", "/7 5 9 tok",
	} {
		if have, ok := ParseMessage(text); ok {
			t.Errorf("%q: %+v, want none", text, have)
		}
	}
}

func TestParseVote(t *testing.T) {
	id := driver.VoteReply{Node: "ID"}
	waits := func(fields ...any) []any { return []any{now, "ID", fields} }
	for _, c := range []struct {
		reply any
		want  driver.AcquireReply
		void  bool
	}{
		{[]any{now, "ID", "7"}, driver.AcquireReply{Held: true, Fence: 7, Vote: id}, false},
		{[]any{now, int64(0)}, driver.AcquireReply{}, true},
		{
			waits("5", int64(3), int64(1500), "h:1:x:9", "42"),
			driver.AcquireReply{Fence: 42, Ticket: 5, Position: 3, Remaining: 1500 * time.Millisecond, Holder: "h:1:x:9", Vote: id}, false,
		},
	} {
		if have, void, err := ParseVote(driver.AcquireRequest{}, c.reply); err != nil || void != c.void || have != c.want {
			t.Errorf("%v: %+v, %v, %v; want %+v, %v", c.reply, have, void, err, c.want, c.void)
		}
	}
	_, _, err := ParseVote(driver.AcquireRequest{Name: "n"}, []any{now, "ID", int64(1_500_000)})
	var recovering *driver.RecoveringError
	if !errors.Is(err, driver.ErrUnavailable) || !errors.As(err, &recovering) || *recovering != (driver.RecoveringError{Node: "ID", Remaining: 1500 * time.Millisecond}) {
		t.Errorf("error %v, want that it was restarted", err)
	}
	for _, reply := range []any{
		nil, "7", int64(7), []any{}, []any{now}, []any{now, int64(1)}, []any{now, "ID"}, []any{"x", "ID", "7"}, []any{now, "", "7"},
		[]any{now, int64(1), "7"}, []any{now, "ID", "0"}, []any{now, "ID", "x"}, []any{now, "ID", int64(0)}, []any{now, "ID", int64(-1)},
		[]any{now, "ID", nil}, []any{now, "ID", "7", "8"}, waits(), waits("5", int64(3), int64(1), "h"), waits("5", int64(3), int64(1), "h", "x"),
		waits("5", int64(-3), int64(1), "h", "42"), waits("5", int64(3), int64(1), "h", "42", "43"), waits("5", "3", int64(1), "h", "42"),
	} {
		if a, void, err := ParseVote(driver.AcquireRequest{}, reply); err == nil {
			t.Errorf("%v: %+v, %v, want an error", reply, a, void)
		}
	}
}

// randomReply builds a reply from bytes: nil, int64, string, and lists of these.
func randomReply(data *[]byte, depth int) any {
	next := func(n int) []byte {
		n = min(n, len(*data))
		part := (*data)[:n]
		*data = (*data)[n:]
		return part
	}
	kind := next(1)
	if len(kind) == 0 {
		return nil
	}
	size := int(kind[0]) >> 3
	switch kind[0] % 7 {
	case 0:
		return nil
	case 1:
		return int64(size) - 3
	case 2:
		var wide [8]byte
		copy(wide[:], next(8))
		return int64(binary.LittleEndian.Uint64(wide[:]))
	case 3:
		return string(next(size))
	case 4: // numbers are frequent
		return strconv.FormatUint(uint64(size)<<(size%50), 10)
	case 5: // times too
		return now + int64(size) - 3
	}
	list := []any{}
	for range size {
		if depth == 0 || len(*data) == 0 {
			break
		}
		list = append(list, randomReply(data, depth-1))
	}
	return list
}

// No reply should make the parsers panic or return a lease without a fence. The scripts' replies
// should be parsed without loss.
func FuzzReplies(f *testing.F) {
	for kind := range 7 {
		f.Add([]byte{byte(kind), byte(kind) + 16, 255, 1, 2, 3, 4}, "t", uint64(1), int64(1), int64(1))
	}
	f.Add([]byte{0x16, 2, 0, 0, 0, 0, 0, 0, 0, 128, 4}, "h:1:x:9:daily", uint64(math.MaxInt64), int64(-1), int64(math.MaxInt64))
	f.Add([]byte("\x14\x0e7 5 9 tok"), "a b", uint64(now), int64(-2), int64(math.MinInt64))
	f.Add([]byte{}, "\n", uint64(0), int64(1), int64(106)) // revoked, without a token
	f.Fuzz(func(t *testing.T, data []byte, token string, number uint64, left, clock int64) {
		rest := data
		for len(rest) > 0 {
			v := randomReply(&rest, 4)
			answer, void, err := ParseAcquire(v)
			switch {
			case answer.Held && (answer.Fence == 0 || err != nil || void):
				t.Errorf("%v: %+v, %v, %v", v, answer, void, err)
			case (err != nil || void) && answer != (driver.AcquireReply{}):
				t.Errorf("%v: %+v beside %v, void %v", v, answer, err, void)
			case answer.Held && answer != (driver.AcquireReply{Held: true, Fence: answer.Fence}), answer.Position < 0:
				t.Errorf("%v: %+v", v, answer)
			}
			wantNamedStates(t, v)
			if value, index, err := ParseDescription(v); (err != nil || index < 0) && (len(value.Items) > 0 || index >= 0) {
				t.Errorf("%v: %+v, index %d, %v", v, value, index, err)
			}
			if ended, notified, err := ParseForeignRevocation(v); err != nil && (ended || notified != 0) {
				t.Errorf("%v: %v, %d, %v", v, ended, notified, err)
			}
			ServerTime(redisconn.Reply{Value: v})
			if text, ok := v.(string); ok {
				wantValidMessage(t, text)
			}
			wantNoGrantFromWrongReply(t, v)
		}
		wantValidMessage(t, token)
		wantValidMessage(t, fmt.Sprintf("%d %d %d %s", number, left, clock, token))
		wantRoundTrips(t, token, number>>1, left)
	})
}

func wantNamedStates(t *testing.T, v any) {
	t.Helper()
	names := []string{"n", "m"}
	states, err := ParseStates(names, most, v)
	if err == nil && len(states) == 0 || len(states) > len(names) {
		t.Errorf("%v: %d states, %v", v, len(states), err)
	}
	for i, one := range states {
		if one.Err == nil && one.State.Name != names[i] {
			t.Errorf("%v: %+v", v, one)
		}
	}
}

func wantValidMessage(t *testing.T, text string) {
	t.Helper()
	m, ok := ParseMessage(text)
	e := m.Event
	if ok && (e.Token == "" || e.Kind == driver.EventGranted && (e.Fence == 0 || e.Fences > e.Fence) || e.Kind != driver.EventGranted && e.Kind != driver.EventRetry && e.Kind != driver.EventRevoked || e.Age < 0) {
		t.Errorf("message %q: %+v", text, e)
	}
}

// wantNoGrantFromWrongReply checks that a reply with another length grants neither of two merged
// requests.
func wantNoGrantFromWrongReply(t *testing.T, v any) {
	t.Helper()
	list, _ := v.([]any)
	for i := range 2 {
		r := Split(redisconn.Reply{Value: v}, i, 2)
		if r.Err != nil {
			continue
		}
		answer, _, err := ParseAcquire(r.Value)
		if err == nil && (len(list) != 3 || !reflect.DeepEqual(r.Value, []any{list[0], list[i+1]})) {
			t.Errorf("request %d of two: %+v from the reply %#v", i, answer, v)
		}
	}
}

// The answer to a request for several names contains the busy name.
func TestBusyName(t *testing.T) {
	r := driver.AcquireRequest{Name: "a", With: []string{"b", "c"}}
	for n, want := range map[int64]string{0: "a", 1: "a", 2: "b", 3: "c", 4: "a", -1: "a", math.MaxInt64: "a"} {
		reply := []any{now, []any{"5", int64(1), int64(30), "tok", n}}
		answer, _, err := ParseAcquire(reply)
		if have := BusyName(r, reply); have != want || err != nil || answer.Ticket != 5 {
			t.Errorf("%d: %q, %+v, %v; want %q", n, have, answer, err, want)
		}
	}
	for _, reply := range []any{nil, int64(7), []any{now, int64(0)}, []any{now, []any{"5", int64(1), int64(30), "tok", "2"}}} {
		if have := BusyName(r, reply); have != "a" {
			t.Errorf("%v: %q", reply, have)
		}
	}
}

func wantRoundTrips(t *testing.T, token string, number uint64, left int64) {
	t.Helper()
	if number > 0 {
		want := driver.AcquireReply{Held: true, Fence: number}
		for _, reply := range []any{int64(number), []any{now, fmt.Sprint(number)}} {
			if have, void, err := ParseAcquire(reply); have != want || void || err != nil {
				t.Errorf("%v: %+v, %v, %v; want %+v", reply, have, void, err, want)
			}
		}
	}
	position := int64(number >> 32)
	answer, void, err := ParseAcquire([]any{now, []any{fmt.Sprint(number), position, left, token}})
	want := driver.AcquireReply{Ticket: number, Position: int(position), Remaining: remaining(left), Holder: token}
	if answer != want || void || err != nil {
		t.Errorf("%+v, %v, %v; want %+v", answer, void, err, want)
	}
	if token == "" {
		return
	}
	// In the scripts' format, an entry's token is everything after the fourth field.
	m, ok := ParseMessage(fmt.Sprintf("%d %d %d %s", number, number/2, now, token))
	e := m.Event
	if !ok || e.Token != token || e.Fence != number || e.Kind == driver.EventGranted && e.Ticket != number/2 {
		t.Errorf("%+v, %v; want fence %d, token %q", e, ok, number, token)
	}
	entry := Entry(driver.AcquireRequest{Client: "h:1:x", Seq: number, TTL: time.Minute, Weight: 1, Limit: 1, Token: token})
	if w, ok := parseEntry(entry); !ok || w.Token != token || w.Weight != 1 || w.Limit != 1 || !strings.HasPrefix(entry, fmt.Sprintf("%016x 5000 1/1 ", number)) {
		t.Errorf("entry %q: %+v, %v", entry, w, ok)
	}
	state, err := parseOne([]any{now, fmt.Sprint(number), int64(1), int64(1), token, left, "0", "7", entry, fmt.Sprint(now), ""})
	if err != nil || state.Fence != number || len(state.Holders) != 1 || state.Holders[0].Fence != 7 || state.Holders[0].Token != token || state.Holders[0].Remaining != remaining(left) ||
		state.Waiting != 1 || len(state.Waiters) != 1 || state.Waiters[0].Token != token || state.Waiters[0].Waited != 0 {
		t.Errorf("%+v, %v", state, err)
	}
}
