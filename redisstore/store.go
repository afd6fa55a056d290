// Package redisstore stores locks on one Redis: standalone, replicated or a cluster.
// docs/spec.md describes the keys and scripts.
//
// The package imports no client library. It needs only a small Conn. Use an adapter,
// goredisstore, rueidisstore or redigostore, which makes a Store from your own client.
// docs/redis.md describes set-up, topologies and costs.
package redisstore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/slots"
)

// A Store is a driver.Store on Redis. It is safe for concurrent use.
type Store struct {
	conn     Conn
	prefix   string
	sharded  bool
	slots    *slotStates
	replicas *replication // replicas that must have a write, or nil
}

var _ driver.Voter = (*Store)(nil)

// An Option configures a Store.
type Option func(*Store)

// Prefix is put before each name to make its key. The default is "lock:". The prefix may
// be empty, so that names are keys, as in most other libraries. Queues are at
// {key}:dibs:… and fence high-water marks at dibs:fence:…, whatever the prefix: an ACL
// must allow these too.
func Prefix(prefix string) Option { return func(s *Store) { s.prefix = prefix } }

// Sharded declares that the server is a cluster: one script cannot use keys of different
// slots, and subscribers may be on other nodes. Adapters set it.
func Sharded() Option { return func(s *Store) { s.sharded = true } }

// Prompt declares that the Conn's Do returns soon after its context's Deadline, even
// though Done is not closed then. Callers may then call Do themselves, without a worker.
// Adapters set it.
func Prompt() Option { return func(s *Store) { s.slots.single().pipeliner.prompt = true } }

// New returns a Store on a connection. It does no I/O. With a nil conn each call returns
// driver.ErrInvalid.
func New(conn Conn, options ...Option) *Store {
	if conn == nil {
		conn = Invalid("the connection is nil")
	}
	s := &Store{conn: conn, prefix: "lock:", slots: newSlotStates(conn)}
	for _, set := range options {
		if set != nil {
			set(s)
		}
	}
	return s
}

const (
	// defaultTimeout bounds calls without a deadline of their own.
	defaultTimeout = time.Second
	// The first request on a new store does not know the server's time: it is void, and
	// its reply contains the time. The same happens after the server's clock was set.
	// More tries would not help.
	maxTries = 3
)

// Groups implements driver.Store. A group is what one Acquire can take: on a cluster,
// the names of one slot; else all names.
func (s *Store) Groups(names []string) [][]string {
	if !s.sharded {
		return [][]string{names}
	}
	bySlot := make(map[int][]string)
	for _, name := range names {
		at := slots.Of(s.prefix + name)
		bySlot[at] = append(bySlot[at], name)
	}
	groups := make([][]string, 0, len(bySlot))
	for _, at := range slices.Sorted(maps.Keys(bySlot)) {
		groups = append(groups, bySlot[at])
	}
	return groups
}

// Acquire implements driver.Store.
func (s *Store) Acquire(ctx context.Context, c driver.AcquireRequest) (driver.AcquireReply, error) {
	reply, err := s.acquire(ctx, acquire, c, nil)
	return reply.AcquireReply, err
}

// Resize implements driver.Store.
func (s *Store) Resize(ctx context.Context, c driver.AcquireRequest) (driver.AcquireReply, error) {
	reply, err := s.acquire(ctx, resize, c, nil)
	return reply.AcquireReply, err
}

// acquire sends an acquire or a resize. vote is that of a quorum, or nil.
func (s *Store) acquire(ctx context.Context, op acquireOp, c driver.AcquireRequest, vote *driver.Vote) (driver.VoteReply, error) {
	if err := s.checkRequest(c); err != nil {
		return driver.VoteReply{}, err
	}
	if c.Until.IsZero() {
		c.Until = time.Now().Add(defaultTimeout)
	}
	for voids := 0; voids < maxTries; {
		reply, replicaErr := s.call(ctx, s.request(op, c, vote), c.Until, isGrant)
		if reply.Err != nil {
			return driver.VoteReply{}, wrapError(string(op), c.Name, reply.Err)
		}
		answer, void, err := parseReply(op, c, vote, reply.Value)
		switch {
		case errors.Is(err, driver.ErrUnavailable):
			return driver.VoteReply{}, err
		case err != nil:
			return driver.VoteReply{}, wrapError(string(op), c.Name, err)
		case replicaErr != nil:
			return driver.VoteReply{}, s.undoGrant(ctx, op, c, vote, replicaErr)
		case void:
			voids++
		case answer.Held || !unfinished(answer.AcquireReply) || !time.Now().Before(c.Until):
			return answer, nil
		}
	}
	return driver.VoteReply{}, wrapError(string(op), c.Name, errExpired)
}

// unfinished reports whether the script stopped before the end of the queue, to bound its
// time. It has to be called again.
func unfinished(a driver.AcquireReply) bool { return !a.Held && a.Holder == "" && a.Remaining == 0 }

func parseReply(op acquireOp, c driver.AcquireRequest, vote *driver.Vote, v any) (answer driver.VoteReply, void bool, err error) {
	if op == acquire && vote != nil {
		return parseVote(c, v)
	}
	answer.AcquireReply, void, err = parseAcquireReply(v)
	if err == nil && !answer.Held && !void {
		answer.Name = busyName(c, v)
	}
	return answer, void, err
}

// An acquireOp is an operation whose reply is a driver.AcquireReply.
type acquireOp string

const (
	acquire acquireOp = "acquire"
	resize  acquireOp = "resize"
)

func (s *Store) request(op acquireOp, c driver.AcquireRequest, vote *driver.Vote) *request {
	switch {
	case op == resize:
		return s.resizeRequest(c, vote)
	case vote != nil:
		return s.voteRequest(c, vote)
	case len(c.With) > 0:
		return s.allRequest(c)
	}
	return s.acquireRequest(c)
}

func (s *Store) checkRequest(c driver.AcquireRequest) error {
	if err := driver.CheckAcquire(c); err != nil {
		return err
	}
	if err := s.checkKey(c.Name); err != nil {
		return err
	}
	for _, name := range c.With {
		if err := s.checkKey(name); err != nil {
			return err
		}
	}
	return checkToken(c.Name, c.Token)
}

// sharedMark begins the value of the lock key while it is shared. No token may begin with
// it.
const sharedMark = "dibs:shared "

func checkToken(name, token string) error {
	if strings.HasPrefix(token, sharedMark) {
		return fmt.Errorf("%w: %q: token %q begins with the mark of a shared lock", driver.ErrInvalid, name, token)
	}
	return nil
}

// check validates the settings of the store, and a name.
func (s *Store) check(name string) error {
	if err := driver.CheckName(name); err != nil {
		return err
	}
	return s.checkKey(name)
}

// checkKey validates the settings of the store, and the key of a valid name.
func (s *Store) checkKey(name string) error {
	if err := s.replicas.check(); err != nil {
		return err
	}
	if s.prefix == "" {
		return checkKey(name)
	}
	return checkKey(s.prefix + name)
}

// acquireRequest writes keys and numbers into one string and slices it, to save
// allocations.
func (s *Store) acquireRequest(c driver.AcquireRequest) *request {
	var buf [512]byte
	k := s.appendKeys(buf[:0], c.Name)
	b := k.text
	ttl := len(b)
	b = strconv.AppendInt(b, milliseconds(c.TTL), 10)
	entry := len(b)
	if c.Queue {
		b = appendEntry(b, c, false)
	}
	text := string(b)
	lock, queue, meta, highwater, holders := k.split(text)
	r := newRequest(acquireScript, s.slotOf(k), lock, queue, meta, highwater, holders)
	r.args(s.checkArg())
	r.coalescable, r.mergeKey, r.argsStart = c.Exclusive(), lock, len(r.cmd)
	r.args(c.Token, text[ttl:entry])
	r.untilArg()
	r.args(text[entry:], sharedArgument(c))
	return r
}

// sharedArgument is the script argument of a shared request, "" for an exclusive one.
func sharedArgument(c driver.AcquireRequest) string {
	if c.Exclusive() {
		return ""
	}
	return weightArgument(c)
}

func weightArgument(c driver.AcquireRequest) string {
	return fmt.Sprintf("%d/%d %s", c.Weight, c.Limit, c.Client)
}

// allRequest acquires several names in one step.
func (s *Store) allRequest(c driver.AcquireRequest) *request {
	var keys []string
	var at *slotState
	for _, name := range append([]string{c.Name}, c.With...) {
		k := s.appendKeys(nil, name)
		at = s.slotOf(k)
		lock, queue, meta, highwater, holders := k.split(string(k.text))
		keys = append(keys, lock, queue, meta, highwater, holders)
	}
	entry := ""
	if c.Queue {
		entry = string(appendEntry(nil, c, false))
	}
	r := newRequest(acquireAllScript, at, keys...)
	r.args(s.checkArg(), c.Token, decimal(milliseconds(c.TTL)))
	r.untilArg()
	r.args(entry)
	return r
}

func (s *Store) resizeRequest(c driver.AcquireRequest, vote *driver.Vote) *request {
	r := s.requestOn(resizeScript, c.Name)
	if vote != nil {
		r.key(nodeKey)
	}
	r.args(s.checkArg(), c.Token, decimal(milliseconds(c.TTL)))
	r.untilArg()
	r.args(weightArgument(c))
	if vote != nil {
		r.args(voteArguments(vote)...)
	}
	return r
}

// requestOn begins a call of a script on one name.
func (s *Store) requestOn(script *script, name string) *request {
	k := s.appendKeys(nil, name)
	lock, queue, meta, highwater, holders := k.split(string(k.text))
	return newRequest(script, s.slotOf(k), lock, queue, meta, highwater, holders)
}

// slotOf returns the slot state of a name's keys.
func (s *Store) slotOf(k keys) *slotState {
	if !s.sharded {
		return s.slots.single()
	}
	return s.slots.of(k.slot)
}

// appendEntry writes a queue entry without its token. voter marks a request of a quorum.
func appendEntry(b []byte, c driver.AcquireRequest, voter bool) []byte {
	const digits = 16
	var hex [digits]byte
	seq := strconv.AppendUint(hex[:0], c.Seq, 16)
	b = append(b, "0000000000000000"[:digits-len(seq)]...)
	b = append(b, seq...)
	b = append(b, ' ')
	b = strconv.AppendInt(b, milliseconds(c.HandoffTTL()), 10)
	b = append(b, ' ')
	b = strconv.AppendInt(b, int64(c.Weight), 10)
	b = append(b, '/')
	b = strconv.AppendInt(b, int64(c.Limit), 10)
	switch {
	case len(c.With) > 0:
		b = append(b, '+')
	case voter:
		b = append(b, '*')
	}
	b = append(b, ' ')
	return append(b, c.Client...)
}

// checkArg is "1" if PUBSUB NUMSUB sees all subscribers, else "0".
func (s *Store) checkArg() string {
	if s.sharded {
		return "0"
	}
	return "1"
}

// Cancel implements driver.Store.
func (s *Store) Cancel(ctx context.Context, c driver.AcquireRequest) error {
	return s.cancel(ctx, c, nil)
}

func (s *Store) cancel(ctx context.Context, c driver.AcquireRequest, vote *driver.Vote) error {
	if err := s.checkRequest(c); err != nil {
		return err
	}
	entry := string(appendEntry(nil, c, vote != nil)) + " " + c.Token
	errs := make([]error, 1+len(c.With))
	var group sync.WaitGroup
	for i, name := range c.With {
		group.Go(func() { errs[i+1] = s.cancelName(ctx, c, vote, name, entry) })
	}
	errs[0] = s.cancelName(ctx, c, vote, c.Name, entry)
	group.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) cancelName(ctx context.Context, c driver.AcquireRequest, vote *driver.Vote, name, entry string) error {
	_, err := s.release(ctx, "cancel", driver.ReleaseRequest{Name: name, Token: c.Token, Until: c.Until}, vote, entry)
	return err
}

// Revoke implements driver.Store.
func (s *Store) Revoke(ctx context.Context, name string, fence uint64, reason string) (bool, error) {
	if err := s.check(name); err != nil {
		return false, err
	}
	if err := driver.CheckRevoke(name, fence, reason); err != nil {
		return false, err
	}
	r := s.requestOn(revokeScript, name)
	r.args(s.checkArg(), strconv.FormatUint(fence, 10), reason)
	reply, retried := r.slot.pipeliner.do(ctx, r, deadline(ctx))
	if reply.Err != nil && retried {
		return false, wrapError("revoke", name, unknownOutcome(reply.Err))
	}
	if reply.Err != nil {
		return false, wrapError("revoke", name, reply.Err)
	}
	list, _ := reply.Value.([]any)
	in := reader{fields: list}
	in.int()
	switch n := in.int(); {
	case in.bad || len(in.fields) > 0 || n != 0 && n != 1:
		return false, wrapError("revoke", name, unexpected(reply.Value))
	case n == 0 && retried:
		return false, wrapError("revoke", name, errOutcomeUnknown)
	default:
		return n == 1, nil
	}
}

// deadline returns when a call with this context ends at the latest.
func deadline(ctx context.Context) time.Time {
	if at, ok := ctx.Deadline(); ok {
		return at
	}
	return time.Now().Add(defaultTimeout)
}

// Release implements driver.Store.
func (s *Store) Release(ctx context.Context, r driver.ReleaseRequest) (bool, error) {
	return s.release(ctx, "release", r, nil, "")
}

// release sends a release. With a queue entry it also leaves the queue.
func (s *Store) release(ctx context.Context, op string, rel driver.ReleaseRequest, vote *driver.Vote, entry string) (bool, error) {
	if err := errors.Join(s.check(rel.Name), checkToken(rel.Name, rel.Token)); err != nil {
		return false, err
	}
	if rel.Until.IsZero() {
		rel.Until = time.Now().Add(defaultTimeout)
	}
	for range maxTries {
		r := s.releaseRequest(rel, vote, entry)
		reply, retried := r.slot.pipeliner.do(ctx, r, rel.Until)
		if retried {
			reply.Err = unknownOutcome(reply.Err)
		}
		if reply.Err != nil {
			return false, wrapError(op, rel.Name, reply.Err)
		}
		switch n, ok := reply.Value.(int64); {
		case !ok || n < 0:
			return false, wrapError(op, rel.Name, unexpected(reply.Value))
		case n > 1: // void
		case n == 0 && retried && entry == "":
			return false, wrapError(op, rel.Name, errOutcomeUnknown)
		default:
			return n == 1, nil
		}
	}
	return false, wrapError(op, rel.Name, errExpired)
}

func (s *Store) releaseRequest(rel driver.ReleaseRequest, vote *driver.Vote, entry string) *request {
	var buf [512]byte
	k := s.appendKeys(buf[:0], rel.Name)
	b := k.text
	fence := len(b)
	b = strconv.AppendUint(b, rel.Fence, 10)
	reserve := len(b)
	b = strconv.AppendInt(b, milliseconds(rel.Reserve), 10)
	text := string(b)
	lock, queue, meta, highwater, holders := k.split(text)
	r := newRequest(releaseScript, s.slotOf(k), lock, queue, meta, highwater, holders)
	if vote != nil {
		r.key(nodeKey)
	}
	token := rel.Token
	if rel.Unreserve {
		token += reservedSuffix
	}
	r.args(token, text[fence:reserve])
	if rel.TokenEnds {
		r.args("")
	} else {
		r.untilArg()
	}
	r.args(text[reserve:], s.checkArg(), entry)
	if vote != nil {
		r.args(voteArguments(vote)...)
	}
	r.coalescable = rel.Reserve <= 0 && entry == "" && vote == nil
	return r
}

// Inspect implements driver.Store.
func (s *Store) Inspect(ctx context.Context, name string) (driver.State, error) {
	const most = 100
	if err := s.check(name); err != nil {
		return driver.State{}, err
	}
	r := s.requestOn(inspectScript, name)
	r.args(count(most))
	reply, _ := r.slot.pipeliner.do(ctx, r, deadline(ctx))
	if reply.Err != nil {
		return driver.State{}, wrapError("inspect", name, reply.Err)
	}
	state, err := parseState(name, reply.Value)
	if err != nil {
		return driver.State{}, wrapError("inspect", name, err)
	}
	return state, nil
}

// List implements driver.Store. It scans the whole keyspace.
func (s *Store) List(ctx context.Context, pattern string) ([]string, error) {
	found := make(map[string]bool) // SCAN may return a key twice
	err := s.conn.Masters(ctx, func(n Node) error {
		return scan(ctx, n, quote(s.prefix)+pattern, func(key string) {
			name := key[len(s.prefix):]
			if driver.CheckName(name) == nil && checkKey(key) == nil {
				found[name] = true
			}
		})
	})
	if err != nil {
		return nil, wrapError("list", pattern, err)
	}
	return slices.Collect(maps.Keys(found)), nil
}

// scan calls on for each key of one server that matches a glob.
func scan(ctx context.Context, n Node, match string, on func(key string)) error {
	const page = 1000
	for cursor := "0"; ; {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		reply := doOne(ctx, n, "SCAN", cursor, "MATCH", match, "COUNT", count(page))
		if reply.Err != nil {
			return reply.Err
		}
		pair, _ := reply.Value.([]any)
		in := reader{fields: pair}
		cursor = in.string()
		keys := in.list()
		if in.bad || len(in.fields) > 0 {
			return unexpected(reply.Value)
		}
		for _, key := range keys {
			if text, ok := key.(string); ok {
				on(text)
			}
		}
		if cursor == "0" {
			return nil
		}
	}
}

// doOne sends one command to one server.
func doOne(ctx context.Context, n Node, cmd ...string) Reply {
	var reply [1]Reply
	n.Do(ctx, []Cmd{cmd}, reply[:])
	return reply[0]
}

// quote escapes a text so that it matches itself in a glob.
func quote(text string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(text)
}

func milliseconds(d time.Duration) int64 {
	if d <= 0 {
		return 0
	}
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}

func count(n int) string { return strconv.Itoa(n) }

func decimal(n int64) string { return strconv.FormatInt(n, 10) }
