package core

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/dibslock/dibs/driver"
)

// A bench runs a machine by hand: the test answers the messages.
type bench struct {
	t    *testing.T
	m    *Machine
	now  time.Time
	sent []*Message
	seen []Notification
}

func newBench(t *testing.T, nodes int) *bench {
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	return &bench{t: t, m: New(Config{Nodes: nodes, Majority: nodes/2 + 1, Longest: time.Minute}), now: now}
}

func (b *bench) do(e Effects) {
	b.sent = append(b.sent, e.Send...)
	b.seen = append(b.seen, e.Notify...)
}

// pass lets time pass.
func (b *bench) pass(d time.Duration) {
	for end := b.now.Add(d); ; {
		next := b.m.NextWake()
		if next.IsZero() || next.After(end) {
			b.now = end
			return
		}
		b.now = later(b.now, next)
		b.do(b.m.Wake(b.now))
	}
}

// message returns the message sent to a node, and checks its verb.
func (b *bench) message(node int, verb Verb) *Message {
	b.t.Helper()
	i := slices.IndexFunc(b.sent, func(msg *Message) bool { return msg.Node == node })
	if i < 0 {
		b.t.Fatalf("nothing was sent to node %d", node)
	}
	msg := b.sent[i]
	b.sent = slices.Delete(b.sent, i, i+1)
	if msg.Verb != verb {
		b.t.Fatalf("verb %d was sent to node %d, want %d", msg.Verb, node, verb)
	}
	return msg
}

func (b *bench) wantNothing(node int) {
	b.t.Helper()
	for _, msg := range b.sent {
		if msg.Node == node {
			b.t.Errorf("verb %d was sent to node %d", msg.Verb, node)
		}
	}
}

func (b *bench) answer(node int, verb Verb, r Reply) {
	b.t.Helper()
	msg := b.message(node, verb)
	b.do(b.m.Answer(msg, r, b.now))
}

var (
	lostReply = Reply{Err: &driver.UnavailableError{Op: "test", Cause: errors.New("no reply")}}
	refusal   = Reply{Err: &driver.UnavailableError{Op: "test", Refused: true, Cause: errors.New("no memory")}}
	rival     = Reply{Acquire: driver.AcquireReply{Name: "n", Holder: "rival", Remaining: time.Minute, Fence: 7}}
)

func vote(fence uint64) Reply {
	return Reply{Acquire: driver.AcquireReply{Held: true, Fence: fence}}
}

// accept returns a vote with the fence proposed in a message.
func (b *bench) accept(nodes ...int) {
	b.t.Helper()
	for _, n := range nodes {
		msg := b.message(n, Acquire)
		b.do(b.m.Answer(msg, vote(msg.Acquire.Vote.Fence), b.now))
	}
}

func mutex(queue bool) driver.AcquireRequest {
	return driver.AcquireRequest{Name: "n", Token: "t", Client: "c", TTL: 10 * time.Second, Weight: 1, Limit: 1, Queue: queue}
}

func reader() driver.AcquireRequest {
	q := mutex(false)
	q.Limit = driver.Unlimited
	return q
}

func (b *bench) acquire(q driver.AcquireRequest) *Call {
	c := new(Call)
	q.Until = b.now.Add(time.Second)
	b.do(b.m.Acquire(c, q, b.now))
	return c
}

func (b *bench) release() *Call {
	c := new(Call)
	b.do(b.m.Release(c, driver.ReleaseRequest{Name: "n", Token: "t", Until: b.now.Add(time.Second)}, b.now))
	return c
}

func (b *bench) cancel() *Call {
	c := new(Call)
	q := mutex(false)
	q.Until = b.now.Add(time.Second)
	b.do(b.m.Cancel(c, q, b.now))
	return c
}

func (b *bench) wantHeld(c *Call) {
	b.t.Helper()
	if !c.ended || c.Err != nil || !c.Reply.Held {
		b.t.Fatalf("ended %v, %+v, %v: want a lease", c.ended, c.Reply, c.Err)
	}
}

// A call without a chance for a majority should end at once. An ended call should not wake the
// machine.
func TestAcquireEndsWhenNoMajorityIsPossible(t *testing.T) {
	b := newBench(t, 3)
	c := b.acquire(mutex(false))
	b.answer(0, Acquire, refusal)
	if c.ended {
		t.Error("it ended after one of three refusals")
	}
	b.answer(1, Acquire, refusal)
	if !c.ended || !errors.Is(c.Err, driver.ErrUnavailable) {
		t.Errorf("ended %v, %v: want ErrUnavailable", c.ended, c.Err)
	}
	if c.alarm.isSet() {
		t.Error("its alarm is still set")
	}
	b.message(0, Cancel) // it does not wait, so nothing should be left
}

// A caller that leaves should cancel the request, unless another call for the token waits.
func TestLeavingCallerCancels(t *testing.T) {
	b := newBench(t, 3)
	one, two := b.acquire(mutex(true)), b.acquire(mutex(true))
	b.do(b.m.Leave(one, errors.New("left"), b.now))
	for n := range 3 {
		b.answer(n, Acquire, rival) // the answer to the first call
	}
	b.accept(0, 1, 2)
	b.wantHeld(two)

	b = newBench(t, 3)
	c := b.acquire(mutex(true))
	b.do(b.m.Leave(c, errors.New("left"), b.now))
	b.answer(0, Acquire, rival)
	b.message(0, Cancel)
}

// A message sent while no call waits should belong to the last call, and carry that call's trace.
func TestMessagesBelongToTheLastCall(t *testing.T) {
	b := newBench(t, 3)
	b.acquire(mutex(true))
	for n := range 3 {
		b.answer(n, Acquire, rival)
	}
	c := b.acquire(mutex(true)) // a heartbeat
	ticket := b.message(0, Acquire)
	b.do(b.m.Answer(ticket, rival, b.now))
	b.answer(1, Acquire, rival)
	b.answer(2, Acquire, rival)
	for n := range 2 {
		b.do(b.m.Granted(n, driver.Event{Kind: driver.EventGranted, Token: "t", Ticket: ticket.Acquire.Vote.Ticket, Fence: ticket.Acquire.Vote.Fence + uint64(10+n)}, b.now))
	}
	if msg := b.message(0, Acquire); !c.ended || msg.Call != c { // it stores the larger fence
		t.Errorf("ended %v, a vote request of %p, want %p", c.ended, msg.Call, c)
	}

	b = newBench(t, 3)
	c = b.acquire(mutex(true))
	b.answer(0, Acquire, rival)
	b.do(b.m.Leave(c, errors.New("left"), b.now))
	if msg := b.message(0, Cancel); msg.Call != c {
		t.Errorf("a cancel of %p, want %p", msg.Call, c)
	}
}

// A vote that is being relinquished should not count, whatever a notification says. It should not
// count after a lost answer either.
func TestRelinquishedVoteDoesNotCount(t *testing.T) {
	b := newBench(t, 3)
	c := b.acquire(mutex(true))
	ticket := b.message(0, Acquire)
	b.do(b.m.Answer(ticket, vote(ticket.Acquire.Vote.Fence), b.now))
	b.answer(1, Acquire, rival)
	b.answer(2, Acquire, lostReply)
	b.pass(StragglerTimeout)
	if !c.ended || c.Reply.Held {
		t.Fatalf("ended %v, %+v: want a place in the queue", c.ended, c.Reply)
	}
	msg := b.message(0, Acquire)
	if !msg.Acquire.Vote.Relinquish {
		t.Fatal("the vote is not relinquished")
	}
	granted := driver.Event{Kind: driver.EventGranted, Token: "t", Ticket: msg.Acquire.Vote.Ticket, Fence: msg.Acquire.Vote.Fence}
	b.do(b.m.Granted(1, granted, b.now))
	b.do(b.m.Granted(0, granted, b.now))
	if len(b.seen) > 0 {
		t.Fatal("granted with a vote that is being relinquished")
	}
	b.do(b.m.Answer(msg, lostReply, b.now))
	b.pass(20 * time.Millisecond) // it is sent again
	again := b.message(0, Acquire)
	b.do(b.m.Answer(again, vote(msg.Acquire.Vote.Fence), b.now))
	b.accept(1) // which was also relinquished
	if len(b.seen) > 0 {
		t.Error("granted with a vote that a message under way may still relinquish")
	}
}

// A notification should count even if it arrives before the reply "not granted" to an earlier
// request.
func TestNotificationBeforeTheReply(t *testing.T) {
	b := newBench(t, 3)
	b.acquire(mutex(true))
	first := b.message(0, Acquire)
	granted := driver.Event{Kind: driver.EventGranted, Token: "t", Ticket: first.Acquire.Vote.Ticket, Fence: first.Acquire.Vote.Fence + 10}
	b.do(b.m.Granted(0, granted, b.now))
	b.answer(1, Acquire, rival)
	b.answer(2, Acquire, rival)
	b.do(b.m.Answer(first, rival, b.now))
	b.do(b.m.Granted(1, granted, b.now))
	if len(b.seen) != 1 || b.seen[0].Event.Kind != driver.EventGranted || b.seen[0].Client != "c" {
		t.Errorf("%+v: want one grant", b.seen)
	}
}

// A ticket ends with its grant. So a client that sees the notification after the reply to a later
// request does not count the lease from the later request.
func TestTicketEndsWithItsGrant(t *testing.T) {
	b := newBench(t, 3)
	first := b.acquire(mutex(true))
	for n := range 3 {
		b.answer(n, Acquire, rival)
	}
	for n := range 2 {
		b.do(b.m.Granted(n, driver.Event{Kind: driver.EventGranted, Token: "t", Ticket: first.Reply.Ticket, Fence: 100}, b.now))
	}
	if len(b.seen) != 1 || b.seen[0].Event.Ticket != first.Reply.Ticket {
		t.Fatalf("%+v: want one grant of ticket %d", b.seen, first.Reply.Ticket)
	}
	later := b.acquire(mutex(true))
	for n := range 3 {
		b.answer(n, Acquire, rival) // the lease ended there
	}
	if !later.ended || later.Reply.Ticket == 0 || later.Reply.Ticket == first.Reply.Ticket {
		t.Errorf("ended %v, %+v: want another ticket than %d", later.ended, later.Reply, first.Reply.Ticket)
	}
}

// While a hand-off is being notified, the holder in older replies is no rival, and no vote
// is relinquished at once.
func TestHandOffIsNoSplitVote(t *testing.T) {
	b := newBench(t, 5)
	b.acquire(mutex(true))
	ticket := b.message(0, Acquire)
	b.do(b.m.Answer(ticket, rival, b.now))
	for n := 1; n < 5; n++ {
		b.answer(n, Acquire, rival)
	}
	b.do(b.m.Granted(0, driver.Event{Kind: driver.EventGranted, Token: "t", Ticket: ticket.Acquire.Vote.Ticket, Fence: ticket.Acquire.Vote.Fence + 10}, b.now))
	b.wantNothing(0)
	c := b.m.acquisitions[acquisitionKey{"n", "t"}]
	if n := b.m.countVotes(c); n.topRival != 0 || !c.split.isSet() {
		t.Errorf("strongest rival: %d votes; alarm set: %v; want none, and a pause", n.topRival, c.split.isSet())
	}
}

// If a node's address resolves to another node's server, that server should have a single vote,
// even if the other node is silent now.
func TestVoteOfAMovedNode(t *testing.T) {
	for _, answers := range []bool{false, true} {
		b := newBench(t, 3)
		b.acquire(mutex(true))
		for n, server := range []string{"a", "b", "c"} {
			reply := rival
			reply.Acquire.Vote.Node = server
			b.answer(n, Acquire, reply)
		}
		c := b.acquire(mutex(true)) // a heartbeat
		for n, server := range []string{"a", "a"} {
			msg := b.message(n, Acquire)
			reply := vote(msg.Acquire.Vote.Fence)
			reply.Acquire.Vote.Node = server
			if n == 0 && !answers {
				reply = lostReply
			}
			b.do(b.m.Answer(msg, reply, b.now))
		}
		if c.ended {
			t.Fatalf("node 0 answers: %t: ended with the vote of one server: %+v, %v", answers, c.Reply, c.Err)
		}
		if answers {
			continue
		}
		msg := b.message(2, Acquire)
		reply := vote(msg.Acquire.Vote.Fence)
		reply.Acquire.Vote.Node = "c"
		b.do(b.m.Answer(msg, reply, b.now))
		b.wantHeld(c)
	}
}

// After a cancel or a release, queued requests should not be sent.
func TestEndDropsPendingRequests(t *testing.T) {
	for name, end := range map[string]struct {
		do   func(b *bench) *Call
		verb Verb
	}{"cancel": {(*bench).cancel, Cancel}, "release": {(*bench).release, Release}} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, 3)
			b.acquire(reader())
			b.accept(0, 1) // node 2 is silent
			b.release()
			b.answer(0, Release, Reply{OK: true})
			b.answer(1, Release, Reply{OK: true})
			writer := b.acquire(mutex(false)) // the same token
			b.accept(0, 1)
			b.wantHeld(writer)
			end.do(b)
			b.answer(2, Acquire, vote(1)) // for the reader
			if msg := b.message(2, end.verb); isRequest(msg) {
				t.Error("the vote for a lease that has ended was requested")
			}
			b.wantNothing(2)
		})
	}
}

func isRequest(msg *Message) bool {
	_, is := msg.purpose.(*voteRequest)
	return is
}

// After a cancel, a waiter's queued heartbeat is not sent.
func TestCancelDropsHeartbeats(t *testing.T) {
	b := newBench(t, 3)
	b.acquire(mutex(true))
	b.answer(0, Acquire, rival)
	b.answer(1, Acquire, rival)
	b.pass(StragglerTimeout)
	b.acquire(mutex(true)) // node 2 did not answer the first request
	b.cancel()
	b.answer(2, Acquire, rival)
	if msg := b.message(2, Cancel); isRequest(msg) {
		t.Error("a vote was requested after the cancel")
	}
}

// While a message without an answer may still arrive in an earlier mode, a token is
// cancelled before it is acquired again, whatever its mode was last.
func TestModeWhileAMessageMayArrive(t *testing.T) {
	b := newBench(t, 3)
	b.acquire(mutex(false))
	b.accept(0, 1)
	b.answer(2, Acquire, lostReply) // it may arrive for a second
	b.cancel()
	b.answer(2, Cancel, Reply{})
	b.acquire(reader()) // with the same token
	b.answer(2, Cancel, Reply{})
	b.message(2, Acquire)
	q := &b.m.acquisitions[acquisitionKey{"n", "t"}].queues[2]
	if !q.mayHaveOtherMode(mode{1, 1}, b.now) {
		t.Error("counted as a mutex, though a reader was acquired")
	}
	if !q.lacks(mode{1, 1}) {
		t.Error("its vote counts for a mutex")
	}
}

// reacquired acquires a reader's lock with a token whose release may still arrive at node 1,
// for a second.
func reacquired(t *testing.T) *bench {
	b := newBench(t, 3)
	b.acquire(mutex(false))
	b.accept(0, 1, 2)
	b.release()
	b.answer(0, Release, Reply{OK: true})
	b.answer(1, Release, lostReply)
	b.answer(2, Release, Reply{OK: true})
	c := b.acquire(reader())
	b.accept(0, 2)
	b.wantHeld(c)
	b.answer(1, Cancel, Reply{})
	b.accept(1)
	return b
}

// A node does not count for an upgrade while a lost release may remove the lease there.
func TestUpgradeWhileAReleaseMayArrive(t *testing.T) {
	b := reacquired(t)
	c := b.resize(driver.Unlimited)
	b.answer(0, Resize, resized(9))
	b.answer(1, Resize, resized(9))
	if c.ended {
		t.Fatalf("%+v, %v: ended with a node that may lose the lease", c.Reply, c.Err)
	}
	b.answer(2, Resize, resized(9))
	b.wantHeld(c)
}

// Nor does it count for a renewal.
func TestRenewalWhileAReleaseMayArrive(t *testing.T) {
	for _, late := range []bool{false, true} {
		b := reacquired(t)
		if late {
			b.pass(2 * time.Second)
		}
		c := b.extend(reader())
		b.answer(0, Extend, Reply{Errs: []error{nil}})
		b.answer(1, Extend, Reply{Errs: []error{nil}})
		if c.ended != late {
			t.Fatalf("late: %v, ended: %v", late, c.ended)
		}
		b.answer(2, Extend, Reply{Errs: []error{driver.ErrLost}})
		if held := c.Errs[0] == nil; held != late {
			t.Errorf("late: %v, %v", late, c.Errs[0])
		}
	}
}

func (b *bench) extend(q driver.AcquireRequest) *Call {
	c := new(Call)
	h := driver.ExtendRequest{Name: q.Name, Token: q.Token, Client: q.Client, TTL: q.TTL, Weight: q.Weight, Limit: q.Limit}
	b.do(b.m.Extend(c, []driver.ExtendRequest{h}, b.now.Add(time.Second), b.now))
	return c
}

// An unanswered downgrade may make a reader out of the next lease with the same token. Such a
// node must not count for a mutex until it confirms the mode.
func TestLateDowngradeOfTheNextLease(t *testing.T) {
	b := newBench(t, 3)
	b.acquire(reader())
	b.accept(0, 1, 2)
	for _, weight := range []int{driver.Unlimited, 1} {
		b.resize(weight)
		for n := range 3 {
			r := resized(9)
			if n == 1 && weight == 1 {
				r = lostReply
			}
			b.answer(n, Resize, r)
		}
	}
	b.release()
	for n := range 3 {
		b.answer(n, Release, Reply{OK: true})
	}
	b.acquire(mutex(false))
	b.accept(0, 1, 2)
	b.pass(2 * time.Second) // the downgrade arrived or never will
	renewed := func(c *Call) bool {
		b.answer(0, Extend, Reply{Errs: []error{driver.ErrLost}})
		b.answer(1, Extend, Reply{Errs: []error{nil}})
		b.answer(2, Extend, Reply{Errs: []error{nil}})
		return c.ended && c.Errs[0] == nil
	}
	c := b.extend(mutex(false))
	change := b.message(1, Resize)
	if renewed(c) {
		t.Fatal("renewed with a node that may have a reader")
	}
	b.do(b.m.Answer(change, lostReply, b.now))
	if change.queue.has(mode{1, 1}) {
		t.Fatal("a change of mode that got no answer counts")
	}
	b.pass(2 * time.Second)
	b.answer(1, Resize, resized(10)) // it was sent again
	b.sent = nil                     // such as the repair on node 0
	if c := b.extend(mutex(false)); !renewed(c) {
		t.Errorf("%v: want it renewed, since the node has confirmed the mode", c.Errs)
	}
}

// An unanswered repair may make a reader out of the next lease with the same token.
func TestLateRepairOfTheNextLease(t *testing.T) {
	b := newBench(t, 3)
	b.extend(reader()) // for a lease acquired before this process knew it
	b.answer(0, Extend, Reply{Errs: []error{nil}})
	b.answer(1, Extend, Reply{Errs: []error{nil}})
	b.answer(2, Extend, Reply{Errs: []error{driver.ErrLost}})
	b.answer(2, Acquire, lostReply)
	b.release()
	b.answer(2, Release, Reply{})
	b.acquire(mutex(false))
	b.answer(2, Cancel, Reply{})
	b.accept(2)
	if q := b.m.acquisitions[acquisitionKey{"n", "t"}].queues[2]; q.has(mode{1, 1}) {
		t.Error("the vote counts for a mutex, though the reader's repair may have arrived before it")
	}
}

// The end of an acquisition is repeated only when no earlier request can still arrive.
func TestEndIsRepeatedLast(t *testing.T) {
	b := newBench(t, 3)
	b.acquire(mutex(false))
	b.accept(0, 1)
	b.answer(2, Acquire, lostReply) // it may arrive for a second
	b.release()
	b.answer(2, Cancel, Reply{})
	q := &b.m.acquisitions[acquisitionKey{"n", "t"}].queues[2]
	q.recordUnanswered(b.now.Add(3 * time.Second)) // as another request would
	b.pass(2 * time.Second)
	b.wantNothing(2)
	b.pass(2 * time.Second)
	b.message(2, Cancel)
}

// Neither a repair nor a mode change is sent after a later message for the same token.
func TestRepairAfterALaterMessage(t *testing.T) {
	b := newBench(t, 3)
	b.acquire(reader())
	b.accept(0, 1, 2)
	c := b.m.acquisitionFor("n", "t", b.now)
	for name, p := range map[string]purpose{
		"repair":      repair{driver.ExtendRequest{Name: "n", Token: "t", Weight: 1, Limit: driver.Unlimited}},
		"mode change": &modeChange{mutex(false)},
	} {
		q := &c.queues[0]
		msg := &Message{purpose: p}
		q.sending = true // so the next message waits
		b.m.enqueue(q, time.Minute, msg, b.now)
		if !p.prepare(b.m, msg, b.now) {
			t.Errorf("%s: not sent, though it is the last message", name)
		}
		q.newest = new(Message)
		if p.prepare(b.m, msg, b.now) {
			t.Errorf("%s: sent after a later message", name)
		}
		q.sending, q.pending = false, nil
	}
}

func (b *bench) resize(weight int) *Call {
	c := new(Call)
	q := reader()
	q.Weight, q.Until = weight, b.now.Add(time.Second)
	b.do(b.m.Resize(c, q, b.now))
	return c
}

func resized(fence uint64) Reply { return vote(fence) }

// If a majority refuses an upgrade, the nodes with the upgrade must undo it.
func TestRefusedUpgradeIsReverted(t *testing.T) {
	b := newBench(t, 3)
	b.acquire(reader())
	b.accept(0, 1, 2)
	c := b.resize(driver.Unlimited)
	for range 3 { // tries
		b.answer(0, Resize, resized(9))
		b.answer(1, Resize, rival)
		b.answer(2, Resize, rival)
		msg := b.message(0, Resize)
		if msg.Acquire.Weight != 1 {
			t.Fatalf("weight %d on the node that upgraded it, want 1", msg.Acquire.Weight)
		}
		b.do(b.m.Answer(msg, resized(10), b.now))
		b.pass(3 * time.Millisecond)
	}
	if !c.ended || c.Reply.Held || c.Reply.Holder != "rival" || c.Err != nil {
		t.Errorf("ended %v, %+v, %v: want the refusal", c.ended, c.Reply, c.Err)
	}
}

// A resize returns the largest fence issued by a node, stored by a majority.
func TestFenceOfAResizeIsStored(t *testing.T) {
	b := newBench(t, 3)
	b.acquire(reader())
	b.accept(0, 1, 2)
	c := b.resize(driver.Unlimited)
	largest := b.message(0, Resize)
	fence := largest.Acquire.Vote.Fence + 100
	b.do(b.m.Answer(largest, resized(fence), b.now))
	b.answer(1, Resize, resized(fence-100))
	if c.ended {
		t.Fatal("it ended with a fence that only one node has")
	}
	b.answer(2, Resize, resized(fence-100))
	msg := b.message(1, Resize)
	if msg.Acquire.Vote.Fence != fence {
		t.Errorf("fence %d was sent, want %d", msg.Acquire.Vote.Fence, fence)
	}
	b.do(b.m.Answer(msg, resized(fence), b.now))
	b.wantHeld(c)
	if c.Reply.Fence != fence {
		t.Errorf("fence %d, want %d", c.Reply.Fence, fence)
	}
}

// A single yes must decide only after a majority answered. A repeated answer must not count.
func TestPoll(t *testing.T) {
	b := newBench(t, 5)
	c := b.release()
	b.message(4, Release)
	b.answer(0, Release, Reply{OK: true})
	b.answer(1, Release, Reply{})
	b.pass(StragglerTimeout)
	if c.ended {
		t.Fatal("decided by two nodes of five")
	}
	c.role.(*majorityCall).poll.record(b.m, 0, yes, nil, b.now) // twice more
	c.role.(*majorityCall).poll.record(b.m, 0, yes, nil, b.now)
	if c.ended {
		t.Fatal("decided by one node that answered three times")
	}
	b.answer(2, Release, Reply{})
	if !c.ended || !c.OK || c.Err != nil {
		t.Errorf("ended %v, %v, %v: want true, since one node of three had it", c.ended, c.OK, c.Err)
	}
}
