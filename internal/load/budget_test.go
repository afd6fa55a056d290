package load

import (
	"testing"
	"time"
)

const (
	ms    = time.Millisecond
	never = time.Duration(1<<63 - 1)
)

// fill sends until there is no room.
func fill(b *Budget, now time.Duration, k Kind) (sent []Sent) {
	for b.Room(now, k, 0) > 0 && len(sent) < 10_000 {
		sent = append(sent, b.Send(now, k, 1))
	}
	return sent
}

// endAll ends requests.
func endAll(b *Budget, now time.Duration, sent []Sent, what Outcome) {
	for i := range sent {
		b.End(now, &sent[i], what)
	}
}

// While answers are fast, the limit grows with the requests.
func TestLimitGrows(t *testing.T) {
	b := NewBudget()
	now := time.Duration(0)
	for range 3 {
		before := b.limit
		sent := fill(b, now, Renewal)
		now += 10 * ms
		endAll(b, now, sent, Answered)
		if b.limit < 1.4*before {
			t.Errorf("limit %v after a round of answers, %v before", b.limit, before)
		}
	}
	for range 100 {
		sent := fill(b, now, Renewal)
		now += 10 * ms
		endAll(b, now, sent, Answered)
	}
	if b.limit > highestLimit {
		t.Errorf("limit %v", b.limit)
	}
}

// Equally late answers should halve the limit once.
func TestLateAnswersHalveOnce(t *testing.T) {
	b := NewBudget()
	one := b.Send(0, Renewal, 1)
	b.End(ms, &one, Answered)
	sent := []Sent{b.Send(time.Second, Renewal, 100), b.Send(time.Second, Renewal, 100)}
	endAll(b, 2*time.Second, sent[1:], Answered)
	endAll(b, 2*time.Second, sent[:1], Answered)
	if b.limit != 100 {
		t.Errorf("limit %v after late answers, want half of 200", b.limit)
	}
	if !b.IsReduced() || b.Slow() != time.Second {
		t.Errorf("reduced %t, took %v", b.IsReduced(), b.Slow())
	}
}

// A store that stays slow should not be mistaken for a distant store.
func TestSlowForLongIsLate(t *testing.T) {
	b := NewBudget()
	now := time.Duration(0)
	for range 20 {
		sent := b.Send(now, Renewal, 1)
		now += ms
		b.End(now, &sent, Answered)
	}
	for range 20 {
		sent := fill(b, now, Renewal)
		now += time.Second
		endAll(b, now, sent, Answered)
	}
	if b.limit != lowestLimit {
		t.Errorf("limit %v", b.limit)
	}
}

// An answer need not come to be late.
func TestSilenceIsLate(t *testing.T) {
	b := NewBudget()
	one := b.Send(0, Renewal, 1)
	b.End(ms, &one, Answered)
	b.Send(time.Second, Renewal, 100)
	if b.Room(1200*ms, Renewal, 0) != initialLimit-100 {
		t.Error("the limit was reduced at once")
	}
	for range 3 {
		if b.Room(1202*ms, Renewal, 0) != 0 || b.limit != 50 {
			t.Errorf("limit %v after a silence", b.limit)
		}
	}
}

// A distant store is not late.
func TestLongWayIsNotLate(t *testing.T) {
	b := NewBudget()
	now := time.Duration(0)
	for range 200 {
		sent := b.Send(now, Renewal, 1)
		now += 800 * ms
		b.End(now, &sent, Answered)
	}
	if b.limit < initialLimit {
		t.Errorf("limit %v", b.limit)
	}
}

// The limit never reaches zero, and a request passes now and then although none is answered.
func TestProbes(t *testing.T) {
	b := NewBudget()
	now, probes := time.Duration(0), 0
	for range 20 {
		sent := fill(b, now, Renewal)
		now += time.Second
		endAll(b, now, sent, Unanswered)
	}
	if b.limit != lowestLimit {
		t.Fatalf("limit %v", b.limit)
	}
	fill(b, now, Renewal)
	for end := now + 10*time.Second; now < end; now += 10 * ms {
		if b.Room(now, Renewal, 0) > 0 {
			b.Send(now, Renewal, 1)
			probes++
		}
	}
	if probes < 15 || probes > 25 {
		t.Errorf("%d probes in 10 s without an answer", probes)
	}
}

// After a failure, the pause grows, but not beyond the patience.
func TestPauseAfterFailures(t *testing.T) {
	b := NewBudget()
	now := time.Duration(0)
	for _, want := range []time.Duration{25 * ms, 50 * ms, 100 * ms, 200 * ms, 400 * ms, 500 * ms, 500 * ms} {
		sent := b.Send(now, Renewal, 1)
		b.End(now, &sent, Failed)
		if b.Room(now+want-ms, Renewal, never) > 0 || b.Room(now+want, Renewal, never) == 0 {
			t.Errorf("the pause is not %v", want)
		}
		if b.Room(now+5*ms, Renewal, 5*ms) == 0 {
			t.Error("no room when patience has ended")
		}
		if got := b.Next(now, Renewal, never); got != now+want {
			t.Errorf("room at %v, want %v", got, now+want)
		}
		now += want
	}
	if b.limit != restartLimit {
		t.Errorf("limit %v after failures, want %v", b.limit, restartLimit)
	}
	sent := b.Send(now, Renewal, 1)
	b.End(now, &sent, Answered)
	if b.Room(now, Renewal, never) == 0 {
		t.Error("a pause after an answer")
	}
}

// No kind of request takes all the room.
func TestShares(t *testing.T) {
	for first := range kinds {
		for second := range kinds {
			b := NewBudget()
			fill(b, 0, first)
			if room := b.Room(0, second, 0); first != second && room < 10 {
				t.Errorf("kind %d leaves no room for kind %d", first, second)
			}
		}
	}
}

// A request ends once; a later answer should still count as an answer.
func TestLateAnswerCounts(t *testing.T) {
	b := NewBudget()
	sent := b.Send(0, Renewal, 10)
	b.End(time.Second, &sent, Unanswered)
	b.End(2*time.Second, &sent, Answered)
	if b.sent[Renewal] != 0 || b.Slow() != 2*time.Second {
		t.Errorf("%d units on their way, took %v", b.sent[Renewal], b.Slow())
	}
}

// FuzzBudget checks that the number of units in flight is always right.
func FuzzBudget(f *testing.F) {
	f.Add([]byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 250, 100, 50})
	f.Fuzz(func(t *testing.T, steps []byte) {
		b := NewBudget()
		var open []Sent
		now := time.Duration(0)
		for _, step := range steps {
			now += time.Duration(step) * ms
			if k := Kind(step % uint8(kinds)); step%3 > 0 && b.Room(now, k, time.Second) > 0 {
				open = append(open, b.Send(now, k, int(step%5)+1))
			} else if len(open) > 0 {
				b.End(now, &open[0], Outcome(step/8%4))
				open = open[1:]
			}
			total := 0
			for _, s := range open {
				total += s.units
			}
			if sent := b.sent[0] + b.sent[1] + b.sent[2] + b.sent[3]; sent != total || b.limit < lowestLimit || b.limit > highestLimit {
				t.Fatalf("%d units on their way, counted %d; limit %v", total, sent, b.limit)
			}
		}
		if at := b.Next(now, Renewal, time.Second); len(open) == 0 && b.Room(max(at, now), Renewal, time.Second) == 0 {
			t.Fatal("no room although nothing is on its way")
		}
	})
}
