package wire

import (
	"crypto/rand"
	"fmt"
	"strconv"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/redisstore/internal/foreign"
	"github.com/dibslock/dibs/redisstore/redisconn"
)

// A Request is a script call, with the data needed to join it with others. Its owner can reuse it:
// each encoder begins with reset.
type Request struct {
	redisconn.Cmd
	Route Route // of the keys

	Until     int    // index in Args of the time after which the call is void; 0: none
	MergeKey  string // requests with the same key can be merged; "": none
	MergeFrom int    // index in Args at which this request's own arguments begin
	Joins     Joins  // how it can be coalesced with requests on other names
	Token     string // if it can
	TTL       string // for an acquire that can be coalesced
}

// Joins says how a request can join a coalesced call.
type Joins int

// Kinds of requests in a coalesced call.
const (
	JoinsNot Joins = iota
	JoinsAcquire
	JoinsRelease
	JoinsCancel // a release that leaves the queue, which is usually contended
	joinsEnd
)

// A JoinSet is a set of request kinds.
type JoinSet [joinsEnd]bool

// MaxNames is the maximum number of leases in an extend call, and of names in an inspect call.
const MaxNames = 100

func (r *Request) reset(script *redisconn.Script, k Keys) {
	r.resetMany(script)
	r.addKeys(k.Route, k.list()...)
}

// resetMany begins a call for several names on the same route. addKeys adds the keys for each.
func (r *Request) resetMany(script *redisconn.Script) {
	*r = Request{Cmd: redisconn.Cmd{Script: script, Keys: r.Keys[:0], Args: r.Args[:0]}}
}

func (r *Request) addKeys(at Route, keys ...string) {
	r.Route = at
	r.Keys = append(r.Keys, keys...)
}

func (r *Request) add(args ...string) { r.Args = append(r.Args, args...) }

// addUntil adds the argument after which the request is void. SetUntil writes its value.
func (r *Request) addUntil() {
	r.Until = len(r.Args)
	r.Args = append(r.Args, "0")
}

// Voidable reports whether a request changes something, and is void after a time.
func (r *Request) Voidable() bool { return r.Until > 0 }

// SetUntil writes the time after which the request is void, in µs on the server's clock.
func (r *Request) SetUntil(text string) {
	if r.Until > 0 {
		r.Args[r.Until] = text
	}
}

// Acquire encodes an acquire of a single name. To save allocations, it writes keys and numbers into
// one string and slices it.
//
// recent means that no script can have removed the queue entry since the last reply: see
// driver.AcquireRequest.Confirmed.
func (f Format) Acquire(r *Request, request driver.AcquireRequest, recent bool) {
	var buf [512]byte
	k := f.appendKeys(buf[:0], request.Name)
	b := k.text
	ttl := len(b)
	b = strconv.AppendInt(b, Milliseconds(request.TTL), 10)
	entry := len(b)
	if request.Queue {
		b = appendEntry(b, request)
	}
	ticket := len(b)
	b = appendTicket(b, request, recent)
	text := string(b)
	keys := k.split(text)
	r.reset(f.scripts().Acquire, keys)
	r.add(f.check())
	r.MergeKey, r.MergeFrom = keys.Lock, len(r.Args)
	r.add(request.Token, text[ttl:entry])
	r.addUntil()
	r.add(text[entry:ticket], kindArgument(request), text[ticket:])
	if request.Exclusive() && isMadeBy(request.Token, request.Client) && ticket == len(text) && f.joins() {
		r.Joins, r.Token, r.TTL = JoinsAcquire, request.Token, text[ttl:entry]
	}
}

// appendTicket writes the last reply's ticket, if any.
func appendTicket(b []byte, r driver.AcquireRequest, recent bool) []byte {
	if r.Ticket == 0 || !r.Queue {
		return b
	}
	b = strconv.AppendUint(b, r.Ticket, 10)
	if recent {
		b = append(b, '+')
	}
	return b
}

// AcquireAll encodes an acquire of several names in a single step. recent is as in Acquire.
func (f Format) AcquireAll(r *Request, request driver.AcquireRequest, recent bool) {
	r.reset(f.scripts().AcquireAll, f.Keys(request.Name))
	for _, name := range request.With {
		r.Keys = append(r.Keys, f.Keys(name).list()...)
	}
	entry := ""
	if request.Queue {
		entry = string(appendEntry(nil, request))
	}
	r.add(f.check(), request.Token, number(Milliseconds(request.TTL)))
	r.addUntil()
	client := ""
	if !isMadeBy(request.Token, request.Client) {
		client = request.Client
	}
	r.add(entry, client, string(appendTicket(nil, request, recent)))
}

// Vote encodes an acquire by a quorum.
func (f Format) Vote(r *Request, request driver.AcquireRequest) {
	r.reset(f.scripts().Vote, f.Keys(request.Name))
	r.Keys = append(r.Keys, NodeKey)
	entry, relinquish := "", "0"
	if request.Queue {
		entry = string(appendEntry(nil, request))
	}
	if request.Vote.Relinquish {
		relinquish = "1"
	}
	r.add(f.check(), request.Token, number(Milliseconds(request.TTL)))
	r.addUntil()
	r.add(entry, kindArgument(request))
	r.add(strconv.FormatUint(request.Vote.Ticket, 10), leastFence(request.Vote), recoveryArgument(request.Vote), relinquish, rand.Text())
}

// Resize encodes a weight change.
func (f Format) Resize(r *Request, request driver.AcquireRequest) {
	r.reset(f.scripts().Resize, f.Keys(request.Name))
	r.add(f.check(), request.Token, number(Milliseconds(request.TTL)))
	r.addUntil()
	r.add(weightArgument(request))
	r.addVote(request.Vote)
}

// Release encodes a release. With an entry from Entry, it also leaves the queue. mixed means that
// clients of other libraries use the name.
func (f Format) Release(r *Request, rel driver.ReleaseRequest, entry string, mixed bool) {
	var buf [512]byte
	k := f.appendKeys(buf[:0], rel.Name)
	b := k.text
	value := len(b)
	b = appendValue(b, rel.Token, rel.Fence)
	token := len(b) - len(rel.Token)
	if rel.Unreserve {
		b = append(b, ReservedSuffix...)
	}
	fence := len(b)
	if token == value {
		b = strconv.AppendUint(b, rel.Fence, 10)
	}
	reserve := len(b)
	b = strconv.AppendInt(b, Milliseconds(rel.Reserve), 10)
	text := string(b)
	r.reset(f.scripts().Release, k.split(text))
	r.add(text[value:fence], text[fence:reserve])
	if rel.LastUse {
		r.add("")
	} else {
		r.addUntil()
	}
	r.add(text[reserve:], f.check(), entry)
	switch {
	case rel.Vote != nil:
		r.addVote(rel.Vote)
	case mixed:
		r.add("1")
	default:
		r.add("0")
	}
	if rel.Reserve <= 0 && rel.Vote == nil && f.joins() && foreign.ClientOf(rel.Token) != "" {
		r.Joins, r.Token = JoinsRelease, text[token:fence]
		if entry != "" {
			r.Joins = JoinsCancel
		}
	}
}

// addVote adds the vote's key and arguments to a release or resize.
func (r *Request) addVote(v *driver.Vote) {
	if v != nil {
		r.Keys = append(r.Keys, NodeKey)
		r.add(leastFence(v), recoveryArgument(v), rand.Text())
	}
}

// Revoke encodes a revocation.
func (f Format) Revoke(r *Request, q driver.RevokeRequest) {
	r.reset(f.scripts().Revoke, f.Keys(q.Name))
	r.add(f.check(), strconv.FormatUint(q.Fence, 10), q.Reason, q.Token)
}

// Wanted encodes a request for a notification about the next waiter.
func (f Format) Wanted(r *Request, w driver.WantedRequest) {
	r.reset(f.scripts().Wanted, f.Keys(w.Name))
	r.add(w.Token, w.Client)
}

// ReserveFences encodes a reservation of fences.
func (f Format) ReserveFences(r *Request, q driver.FenceRequest) {
	k := f.Keys(q.Name)
	r.resetMany(f.scripts().ReserveFences)
	r.addKeys(k.Route, k.Lock, k.Highwater)
	r.add(q.Token, strconv.Itoa(q.Count), strconv.FormatUint(q.Least, 10))
}

// Announce encodes an announcement for names in a single slot.
func (f Format) Announce(r *Request, names []string) {
	r.resetMany(f.scripts().Announce)
	for _, name := range names {
		k := f.Keys(name)
		r.addKeys(k.Route, k.Queue, k.Meta)
	}
}

// Inspect encodes a query for the states of names in a single slot, with at most this many holders
// and waiters for each.
func (f Format) Inspect(r *Request, names []string, most int) {
	r.resetMany(f.scripts().Inspect)
	for _, name := range names {
		k := f.Keys(name)
		r.addKeys(k.Route, k.list()...)
	}
	r.add(strconv.Itoa(most))
}

// Extend encodes extensions for leases in a single slot: requests[i] for each i in which. It moves
// leases that need no details to the beginning of which.
func (f Format) Extend(r *Request, requests []driver.ExtendRequest, which []int) {
	bare := 0
	for n, i := range which {
		if !needsDetails(requests[i]) {
			which[bare], which[n] = which[n], which[bare]
			bare++
		}
	}
	r.resetMany(f.scripts().Extend)
	r.add(strconv.Itoa(bare))
	for n, i := range which {
		f.addExtend(r, requests[i], n >= bare)
	}
}

// needsDetails reports whether the lease has metadata. It has none if it is exclusive, its value
// contains the fence, and its token contains the client.
func needsDetails(h driver.ExtendRequest) bool {
	return h.Fence == 0 || !IsExclusive(h) || !isMadeBy(h.Token, h.Client)
}

// addExtend writes a lease's keys and numbers into one string, as Acquire does.
func (f Format) addExtend(r *Request, h driver.ExtendRequest, details bool) {
	var buf [512]byte
	k := f.appendKeys(buf[:0], h.Name)
	b := k.text
	value := len(b)
	b = appendValue(b, h.Token, h.Fence)
	ttl := len(b)
	b = strconv.AppendInt(b, Milliseconds(h.TTL), 10)
	end := len(b)
	if details {
		b = appendDetails(b, h)
	}
	text := string(b)
	keys := k.split(text)
	r.addKeys(keys.Route, keys.Lock)
	r.add(text[value:ttl], text[ttl:end])
	if details {
		r.Keys = append(r.Keys, keys.Meta, keys.Holders)
		r.add(text[end:])
	}
}

func appendDetails(b []byte, h driver.ExtendRequest) []byte {
	weight := h.Weight
	if IsExclusive(h) {
		weight = 0
	}
	b = strconv.AppendInt(b, int64(weight), 10)
	b = strconv.AppendUint(append(b, ' '), h.Fence, 10)
	return append(append(b, ' '), h.Client...)
}

// IsExclusive reports whether a lease is known to be exclusive.
func IsExclusive(h driver.ExtendRequest) bool { return h.Weight > 0 && h.Weight == h.Limit }

// ExtendKey encodes the extension of a single lease key: kind is lock, holders or meta.
func (f Format) ExtendKey(r *Request, h driver.ExtendRequest, kind string) {
	k := f.Keys(h.Name)
	r.reset(f.scripts().ExtendKey, k)
	r.Keys = append(r.Keys[:0], map[string]string{"lock": k.Lock, "holders": k.Holders, "meta": k.Meta}[kind])
	r.add(kind, h.Token, number(Milliseconds(h.TTL)))
}

// Entry returns a request's queue entry, with its token.
func Entry(r driver.AcquireRequest) string {
	return string(appendEntry(nil, r)) + " " + r.Token
}

// appendEntry writes a queue entry without its token.
func appendEntry(b []byte, r driver.AcquireRequest) []byte {
	const digits = 16
	var hex [digits]byte
	seq := strconv.AppendUint(hex[:0], r.Seq, 16)
	b = append(b, "0000000000000000"[:digits-len(seq)]...)
	b = append(b, seq...)
	b = append(b, ' ')
	b = strconv.AppendInt(b, Milliseconds(r.HandoffTTL()), 10)
	b = append(b, ' ')
	b = strconv.AppendInt(b, int64(r.Weight), 10)
	b = append(b, '/')
	if r.Late && r.Vote == nil {
		b = append(b, '0') // scripts without late waiters read the same number
	}
	b = strconv.AppendInt(b, int64(r.Limit), 10)
	switch {
	case len(r.With) > 0:
		b = append(b, '+')
	case r.Vote != nil:
		b = append(b, '*')
	}
	b = append(b, ' ')
	return append(b, r.Client...)
}

// check is "1" if PUBSUB NUMSUB sees all subscribers, else "0".
func (f Format) check() string {
	if f.Sharded || f.Proxy {
		return "0"
	}
	return "1"
}

// kindArgument is the script argument for a shared request, "" for an exclusive request, and "-"
// plus the client for an exclusive request with a user's own token.
func kindArgument(r driver.AcquireRequest) string {
	switch {
	case !r.Exclusive():
		return weightArgument(r)
	case isMadeBy(r.Token, r.Client):
		return ""
	}
	return "- " + r.Client
}

func weightArgument(r driver.AcquireRequest) string {
	return fmt.Sprintf("%d/%d %s", r.Weight, r.Limit, r.Client)
}

// leastFence is the smallest fence to grant. It is never zero, which means unknown.
func leastFence(v *driver.Vote) string { return strconv.FormatUint(max(v.Fence, 1), 10) }

// recoveryArgument is the recovery window in µs.
func recoveryArgument(v *driver.Vote) string { return number(v.RecoveryWindow.Microseconds()) }

// Milliseconds returns a duration in ms, rounded up.
func Milliseconds(d time.Duration) int64 {
	if d <= 0 {
		return 0
	}
	return int64((d-1)/time.Millisecond) + 1 // d may be the longest duration
}

func number(n int64) string { return strconv.FormatInt(n, 10) }
