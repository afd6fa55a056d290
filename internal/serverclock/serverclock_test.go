package serverclock

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"
)

// A remoteClock is a server's clock beside a local one: ahead by whole µs and a fraction.
// Each exchange takes some time to the server, at the server, and back.
type remoteClock struct {
	epoch time.Time
	ahead time.Duration
}

func (f remoteClock) at(t time.Time) int64 { return t.Add(f.ahead).UnixMicro() }

func (f remoteClock) wantBounds(t *testing.T, c *Clock, local time.Time) {
	t.Helper()
	truth := f.at(local)
	if late := c.Latest(local); late < truth {
		t.Errorf("latest is %d µs too early", truth-late)
	}
	if early := c.local(local) + c.low; early > truth {
		t.Errorf("earliest is %d µs too late", early-truth)
	}
}

func TestNewClockHasNoBounds(t *testing.T) {
	c := &Clock{epoch: time.Now()}
	if late, early := c.Latest(time.Now().Add(time.Hour)), c.Earliest(time.Now()); late != 0 || early != 0 {
		t.Errorf("%d, %d from a new clock", late, early)
	}
}

// With each reply the bounds get closer, and the true time stays between them.
func TestClockNarrows(t *testing.T) {
	epoch := time.Now()
	server := remoteClock{epoch, 42*time.Hour + 7*time.Nanosecond}
	c := &Clock{epoch: epoch}
	width := int64(1 << 62)
	at := epoch
	for _, trip := range []struct{ there, back time.Duration }{
		{10 * time.Millisecond, 10 * time.Millisecond},
		{time.Millisecond, time.Second},
		{time.Second, time.Millisecond},
		{time.Microsecond, 0},
		{time.Second, time.Second}, // no new information
		{0, time.Microsecond},
		{0, 0},
	} {
		seen := at.Add(trip.there)
		done := seen.Add(trip.back)
		c.Learn(at, done, server.at(seen))
		now := c.top - c.low
		if most := (trip.there + trip.back).Microseconds() + 3; now > width || now > most || now < 0 {
			t.Errorf("after %v: bounds %d µs apart, they were %d", trip, now, width)
		}
		width = now
		server.wantBounds(t, c, done)
		server.wantBounds(t, c, done.Add(time.Hour))
		at = done.Add(time.Second + 333*time.Nanosecond)
	}
	if width > 4 {
		t.Errorf("bounds %d µs apart after an exchange that took no time", width)
	}
}

// If the server's clock was set, or another server took its place, the new bounds apply
// at once. Bounds between the old and the new time would be wrong for both.
func TestClockDiscardsContradictedBounds(t *testing.T) {
	for _, jump := range []time.Duration{time.Hour, -time.Hour, time.Millisecond, -time.Millisecond, 10 * time.Microsecond, -10 * time.Microsecond} {
		epoch := time.Now()
		c := &Clock{epoch: epoch}
		before := remoteClock{epoch, time.Minute}
		c.Learn(epoch, epoch, before.at(epoch))
		after := remoteClock{epoch, before.ahead + jump}
		sent := epoch.Add(time.Second)
		seen := sent.Add(2 * time.Microsecond)
		done := seen.Add(2 * time.Microsecond)
		c.Learn(sent, done, after.at(seen))
		after.wantBounds(t, c, done)
		if width := c.top - c.low; width > 7 {
			t.Errorf("a jump of %v: bounds %d µs apart after an exchange of 4", jump, width)
		}
	}
}

// A jump that is too small to contradict the bounds is within them, or within the
// duration of one exchange.
func TestClockDrifts(t *testing.T) {
	epoch := time.Now()
	c := &Clock{epoch: epoch}
	server := remoteClock{epoch: epoch}
	const trip = 200 * time.Microsecond
	for i := range 10_000 { // 1000 s at 100 ppm: 100 ms in all
		server.ahead += 10 * time.Microsecond
		sent := epoch.Add(time.Duration(i) * 100 * time.Millisecond)
		done := sent.Add(trip)
		c.Learn(sent, done, server.at(sent.Add(trip/2)))
		truth := server.at(done)
		if late, early := c.Latest(done), c.local(done)+c.low; late < truth-trip.Microseconds() || early > truth+trip.Microseconds() {
			t.Fatalf("exchange %d: between %d and %d, is %d", i, early, late, truth)
		}
	}
}

// earliest follows the current time.
func TestClockEarliest(t *testing.T) {
	epoch := time.Now()
	c := &Clock{epoch: epoch}
	server := remoteClock{epoch, -time.Hour}
	c.Learn(epoch, time.Now(), server.at(epoch))
	for range 1000 {
		early := c.Earliest(time.Now())
		after := time.Now()
		if truth := server.at(after); early > truth {
			t.Fatalf("earliest is %d µs too late", early-truth)
		}
		if late := c.Latest(after); late < early {
			t.Fatalf("latest %d before earliest %d", late, early)
		}
	}
}

// FuzzClock checks that the true time is between the bounds after any exchanges.
func FuzzClock(f *testing.F) {
	f.Add(uint64(1), int64(0), uint32(1000))
	f.Add(uint64(2), int64(-1), uint32(1))
	f.Add(uint64(3), int64(1_700_000_000_999_999_999), uint32(0))
	f.Add(uint64(4), int64(-1_700_000_000_000_000_001), uint32(1<<31))
	f.Fuzz(func(t *testing.T, seed uint64, ahead int64, longest uint32) {
		const most = int64(200 * 365 * 24 * time.Hour)
		random := rand.New(rand.NewPCG(seed, 0))
		epoch := time.Unix(1_700_000_000, int64(seed%1e9))
		server := remoteClock{epoch, time.Duration(ahead % most)}
		c := &Clock{epoch: epoch}
		at := epoch
		for range 50 {
			part := func() time.Duration { return time.Duration(random.Int64N(int64(longest) + 1)) }
			sent := at
			seen := sent.Add(part())
			done := seen.Add(part())
			c.Learn(sent, done, server.at(seen))
			at = done.Add(part())
			for _, when := range []time.Time{sent, seen, done, at, done.Add(24 * time.Hour)} {
				server.wantBounds(t, c, when)
			}
			if c.low > c.top {
				t.Fatalf("bounds %d and %d", c.low, c.top)
			}
		}
	})
}

// Old bounds are not used as a guess.
func TestOldClockIsNoGuess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New()
		c.Learn(time.Now(), time.Now(), time.Now().UnixMicro())
		if c.Guess(nil).Latest(time.Now()) == 0 {
			t.Error("a fresh clock is no guess")
		}
		time.Sleep(maxBoundAge + time.Second)
		if c.Guess(nil).Latest(time.Now()) != 0 {
			t.Error("an old clock is a guess")
		}
	})
}
