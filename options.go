package dibs

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/dibslock/dibs/driver"
)

// An Option configures a lock. There are three levels, from the outermost to the nearest:
//
//   - an option given to New is the default for all locks of the Client,
//   - an option given to Client.Mutex or a similar method applies to this lock,
//   - an option given to Lock, TryLock, Do or Call applies to this call.
//
// The nearest level wins. Options given to Lease.Yield are even nearer than those given to Do.
//
// A call returns ErrInvalid if a value is invalid. It also returns ErrInvalid if an option has no
// meaning where it is given: Wait given to TryLock, or OwnerToken, which is for a single call, given to
// Mutex. The error says where the option has a meaning; docs/guide.md contains the whole table. A
// default given to New only applies to locks for which it has a meaning.
//
// An Option is a value: it can be copied, and used by concurrent calls. The zero Option has no
// effect.
type Option struct {
	id       optionID
	duration time.Duration
	number   int
	text     string
	hooks    *Hooks
}

// String returns the option in Go notation, such as "Attempts(5, 200ms)". Durations have the format
// of [time.Duration.String]. Owner tokens and hooks are omitted. The zero Option returns an empty
// string.
func (o Option) String() string {
	if o.id == noOption {
		return ""
	}
	rule := &optionRules[o.id]
	var argument string
	switch rule.takes {
	case aDuration:
		argument = o.duration.String()
	case aNumberAndDuration:
		argument = fmt.Sprintf("%d, %v", o.number, o.duration)
	case aText:
		argument = strconv.Quote(o.text)
	case aSecret:
		argument = "…"
	}
	return rule.name + "(" + argument + ")"
}

// GoString returns the same as String, for the verb %#v.
func (o Option) GoString() string { return o.String() }

// Format writes the same text as String for every verb of package fmt.
func (o Option) Format(s fmt.State, verb rune) { formatShort(s, verb, o) }

// settings contains the option values. They are copied, never shared.
type settings struct {
	ttl         time.Duration
	limit       waitLimit
	timeout     time.Duration
	maxHold     time.Duration
	minHold     time.Duration
	noRenew     bool
	reentrant   bool
	label       string
	token       string // chosen by the caller, or empty
	retryFailed bool
	hooks       *hookChain
	continues   bool // the call is part of work under a lock, though its context carries no lease

	places [levels]place // where each level's options are given
	given  [levels]optionSet
}

// A waitLimit is how long a call waits, or how often it tries. The zero waitLimit tries once.
type waitLimit struct {
	wait        time.Duration // unbounded: until the context ends
	attempts    int           // zero: the call queues
	every       time.Duration // between two attempts
	hasAttempts bool          // Attempts was given, and no nearer Wait
	conflicting bool          // Attempts and Wait were given at the same level
	once        bool          // the call tries once, whatever the outer levels' options
}

const (
	unbounded = time.Duration(math.MinInt64) // wait until the context ends
	farFuture = time.Duration(1 << 58)       // nine years, longer than any process lives: sums and small multiples do not overflow
)

func defaults() settings {
	return settings{
		ttl: 30 * time.Second, limit: waitLimit{wait: unbounded}, timeout: driver.OperationTimeout,
		places: [levels]place{toNew, toLock, toCall, toYield},
	}
}

// with returns the settings at the next level.
func (s settings) with(at level, options []Option) settings {
	if len(options) == 0 {
		return s // without a heap allocation
	}
	return s.apply(at, options)
}

// tryOnce returns the settings for a call that tries once.
func (s settings) tryOnce() settings {
	s.limit.once = true
	if s.places[atCall] == toCall {
		s.places[atCall] = toTry
	}
	return s
}

// ofOnce returns the settings for a periodic job.
func (s settings) ofOnce() settings {
	s.places[atLock], s.places[atCall] = toOnce, toOnceDo
	return s
}

// withoutLimit returns the settings without Wait and Attempts.
func (s settings) withoutLimit() settings {
	s.limit = waitLimit{wait: unbounded, conflicting: s.limit.conflicting}
	return s
}

// apply applies a level's options. Wait and Attempts replace each other across levels. At the same
// level they conflict.
func (s settings) apply(at level, options []Option) settings {
	var now optionSet
	for i := range options {
		now |= s.set(&options[i])
	}
	switch waits, attempts := now.has(waitOption), now.has(attemptsOption); {
	case waits && attempts:
		s.limit.conflicting = true
	case waits:
		s.limit = waitLimit{wait: s.limit.wait}
	case attempts:
		s.limit.wait, s.limit.conflicting = unbounded, false
	}
	s.given[at] |= now
	return s
}

// set sets an option's value. It returns the given options, including single hooks.
func (s *settings) set(o *Option) optionSet {
	given := optionSet(1) << o.id
	switch o.id {
	case noOption:
		return 0
	case ttlOption:
		s.ttl = o.duration
	case waitOption:
		s.limit.wait = min(max(o.duration, unbounded+1), farFuture)
	case timeoutOption:
		s.timeout = min(o.duration, farFuture)
	case minHoldOption:
		s.minHold = o.duration
	case maxHoldOption:
		s.maxHold = min(o.duration, farFuture)
	case attemptsOption:
		s.limit.attempts, s.limit.every, s.limit.hasAttempts = o.number, min(o.duration, farFuture), true
	case labelOption:
		s.label = o.text
	case noRenewOption:
		s.noRenew = true
	case reentrantOption:
		s.reentrant = true
	case retryFailedOption:
		s.retryFailed = true
	case ownerTokenOption:
		s.token = o.text
	case observeOption:
		s.hooks = &hookChain{hooks: o.hooks, outer: s.hooks}
		if o.hooks.Renewed != nil {
			given |= 1 << renewedHook
		}
		if o.hooks.Degraded != nil {
			given |= 1 << degradedHook
		}
	}
	return given
}

// TTL sets how long the store keeps a lease without a renewal: a holder's crash blocks the others
// for this long. d is from 10 ms to 24 h; the default is 30 s. TTL does not limit the work while
// renewal is on, which is the default.
//
// A lease from a hand-off (granted to a waiter by a release) starts with 5 s, or TTL if shorter.
// Its first renewal, within 2 s, extends it to the whole TTL.
func TTL(d time.Duration) Option { return Option{id: ttlOption, duration: d} }

// Wait limits how long a call queues. By default it queues until its context ends. d is at least 1
// ms, because a shorter duration, such as Wait(5), probably lacks its unit; zero tries once. Any
// other value is ErrInvalid.
//
// Wait replaces Attempts from an outer level (New or the lock). Wait and Attempts at the same level
// are ErrInvalid. Wait given to Once or to a Try call is also ErrInvalid.
func Wait(d time.Duration) Option { return Option{id: waitOption, duration: d} }

// Timeout limits a store operation including its retries, whatever the Redis client's settings. d
// is at least 1 ms; the default is 1 s. Timeout does not limit renewals, which wait for an answer
// as long as the lease lasts.
func Timeout(d time.Duration) Option { return Option{id: timeoutOption, duration: d} }

// NoRenew turns renewal off: the lease ends after its TTL, unless Extend raises it.
func NoRenew() Option { return Option{id: noRenewOption} }

// MaxHold limits how long a lease is renewed, so a hung worker cannot hold a name forever. After d
// the lease is lost and the name is free, so d should be longer than any normal work. It is at
// least 10 ms; zero, the default, means no limit.
func MaxHold(d time.Duration) Option { return Option{id: maxHoldOption, duration: d} }

// MinHold keeps the name unavailable for at least d after the lock was acquired, even after an
// earlier Unlock or a crash. It is for jobs that must not run twice on machines whose clocks
// differ. d is from 1 ms to 24 h; zero, the default, means none. MinHold given to Yield or to Once
// is ErrInvalid: Once's interval replaces it.
//
// If MinHold is longer than the TTL, the lease starts with MinHold as its TTL. A lease from a
// hand-off (granted to a waiter by a release) gets this TTL at its first renewal, within 2 s.
func MinHold(d time.Duration) Option { return Option{id: minHoldOption, duration: d} }

// Attempts makes a call try n times without queueing. Between two tries the call pauses for the
// duration every. So the first try that finds the name free wins, however long others have tried.
// Callers that need a fair order should use Wait instead. n is at least 1, and every is zero or at
// least 1 ms.
//
// Attempts replaces a Wait from an outer level (New or the lock). Attempts and Wait at the same
// level are ErrInvalid. Attempts given to Once or to a Try call is also ErrInvalid.
func Attempts(n int, every time.Duration) Option {
	return Option{id: attemptsOption, number: n, duration: every}
}

// Label sets a text that Inspect shows with the token, for operators. For example, a leader can
// publish its address as the label. A label should not contain a secret. text is at most 128 bytes
// of printable UTF-8 without spaces.
func Label(text string) Option { return Option{id: labelOption, text: text} }

// Reentrant lets a call use the lease that its context already carries, if the lease holds
// everything the call requests. A reader does not become a writer this way (see Lease.TryUpgrade).
// The name is free after as many Unlocks as Locks. Without this option such a call returns
// ErrReentrant. Reentrant is ErrInvalid for Yield.
func Reentrant() Option { return Option{id: reentrantOption} }

// OwnerToken sets the owner token for a call, such as a request ID, so another process can attach
// to the lease. The token is the owner's secret, not a fencing token: see Lease.Fence. All calls
// with the same token on the same name are the same owner. So a token must be unique to a piece of
// work, and should be hard to guess. Its length is 1 to 256 bytes of printable UTF-8 without
// spaces. OwnerToken is for a single call: given to New, a lock, Wrap or a Locker, it is
// ErrInvalid.
//
// While a call or a lease of this Client uses a token on a name, another call with the same token
// on this name returns ErrReentrant. A lease uses its token until its last Unlock, even after a
// loss. The same token on several names is allowed.
//
// To retry its work after an error or after Unlock, the same Client can use the token again. The
// new call first waits until the earlier call is cancelled in the store: at most two operation
// timeouts plus 100 ms. If the wait takes longer, the new call returns ErrUnavailable. A different
// Client or process must not use the token again until the TTL plus one second passed. A late
// request from the first Client could otherwise end the new lease. To use a lease whose token dibs
// made, call Attach; do not give its token to OwnerToken.
func OwnerToken(token string) Option { return Option{id: ownerTokenOption, text: token} }

// RetryFailed ends a Once's interval if its function returns an error or panics. The next Do in any
// process then runs the job again at once. The interval remains if the process crashes, the lease
// is lost, or its release does not reach the store.
//
// By default the interval also remains after a failed run, because most failing jobs would fail in
// each process, one after another. Use RetryFailed if the next attempt can succeed; the job should
// then tolerate an incomplete earlier run. RetryFailed is for Once only, or a default given to New.
func RetryFailed() Option { return Option{id: retryFailedOption} }

// Observe adds hooks, which run after the outer levels' hooks.
func Observe(hooks Hooks) Option { return Option{id: observeOption, hooks: &hooks} }

const maxLabel = 128

// check validates a request's names and settings before anything is sent.
func (s *settings) check(name string, more ...string) error {
	if err := driver.CheckName(name); err != nil {
		return err
	}
	for _, name := range more {
		if err := driver.CheckName(name); err != nil {
			return err
		}
	}
	if err := s.checkMeaning(name); err != nil {
		return err
	}
	if what, why := s.badValue(); what != "" {
		return invalid("%s of %q: %s", what, name, why)
	}
	return nil
}

// checkDefaults validates the options given to New.
func (s *settings) checkDefaults() error {
	if err := s.checkMeaning(""); err != nil {
		return err
	}
	if what, why := s.badValue(); what != "" {
		return invalid("%s given to New: %s", what, why)
	}
	return nil
}

// checkTimeout validates the Timeout given to New.
func (s *settings) checkTimeout() error {
	if s.timeout < time.Millisecond {
		return invalid("Timeout %v given to New: below 1ms", s.timeout)
	}
	return nil
}

// badValue returns an invalid value and the reason, or empty strings.
func (s *settings) badValue() (what, why string) {
	limit := &s.limit
	attempts := func() string { return Attempts(limit.attempts, limit.every).String() }
	switch {
	case !isTTL(s.ttl):
		return fmt.Sprintf("TTL %v", s.ttl), notTTL
	case s.timeout < time.Millisecond:
		return fmt.Sprintf("Timeout %v", s.timeout), "below 1ms"
	case s.maxHold != 0 && s.maxHold < driver.MinTTL:
		return fmt.Sprintf("MaxHold %v", s.maxHold), fmt.Sprintf("below %v", driver.MinTTL)
	case s.places[atCall] != toOnceDo && (s.minHold < 0 || s.minHold > driver.MaxTTL): // Once already checked its interval
		return fmt.Sprintf("MinHold %v", s.minHold), fmt.Sprintf("not within 0 to %v", driver.MaxTTL)
	case lacksUnit(s.minHold):
		return fmt.Sprintf("MinHold %v", s.minHold), noUnit
	case s.maxHold != 0 && s.maxHold < s.minHold:
		return fmt.Sprintf("MaxHold %v", s.maxHold), fmt.Sprintf("below its MinHold %v", s.minHold)
	case limit.wait < 0 && limit.wait != unbounded:
		return fmt.Sprintf("Wait %v", limit.wait), "negative; leave it out to wait until the context ends"
	case lacksUnit(limit.wait):
		return fmt.Sprintf("Wait %v", limit.wait), noUnit
	case limit.conflicting:
		return "Wait and Attempts", "give Wait or Attempts, not both"
	case limit.hasAttempts && limit.attempts < 1:
		return attempts(), "less than 1"
	case limit.hasAttempts && limit.every < 0:
		return attempts(), "negative"
	case lacksUnit(limit.every):
		return attempts(), noUnit
	case s.label != "" && !isPlain(s.label, maxLabel):
		return "Label", fmt.Sprintf("want at most %d bytes of printable UTF-8 without spaces", maxLabel)
	case s.token == "" && s.choosesToken():
		return "owner token", "empty"
	case s.token != "" && !isPlain(s.token, maxToken):
		return "owner token", fmt.Sprintf("want at most %d bytes of printable UTF-8 without spaces", maxToken)
	}
	return "", ""
}

// lacksUnit reports whether a duration is so short that its unit is probably missing, as in
// Wait(3).
func lacksUnit(d time.Duration) bool { return d > 0 && d < time.Millisecond }

const noUnit = "below 1ms; is the unit missing?"

func isTTL(d time.Duration) bool { return d >= driver.MinTTL && d <= driver.MaxTTL }

var notTTL = fmt.Sprintf("not within %v to %v", driver.MinTTL, driver.MaxTTL)

// checkTTL validates how long the store should keep a name. what names the duration for the user.
func checkTTL(what, name string, ttl time.Duration) error {
	if !isTTL(ttl) {
		return invalid("%s %v of %q: %s", what, ttl, name, notTTL)
	}
	return nil
}
