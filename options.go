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
//   - New sets the defaults of all locks of the Client,
//   - Client.Mutex and the like set it for one lock,
//   - Lock, TryLock, Do and Call for one call.
//
// The nearest level wins. Options of Yield are nearer than those of Do.
//
// An option with a bad value makes the call return ErrInvalid. So does an option that is
// given to a lock or a call for which it has no meaning. Examples are Wait given to a Try
// call, and OwnerToken given to a lock. The error names the place where the option has a
// meaning, and docs/guide.md has the whole table. A default of the Client applies to those
// locks for which it has a meaning.
//
// An Option is a value: it may be copied, and used by concurrent calls. The zero Option has no
// effect.
type Option struct {
	id       optionID
	duration time.Duration
	number   int
	text     string
	hooks    *Hooks
}

// String returns the option in the notation of Go, such as "Attempts(5, 200ms)". Durations are
// those of [time.Duration.String]. Owner tokens and hooks are left out. The zero Option is the
// empty text.
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

// settings are the values that options set. They are copied, never shared.
type settings struct {
	ttl         time.Duration
	limit       waitLimit
	timeout     time.Duration
	maxHold     time.Duration
	minHold     time.Duration
	noRenew     bool
	reentrant   bool
	label       string
	token       string // of the caller's choice, or empty
	retryFailed bool
	hooks       *hookChain
	continues   bool // the call is part of work that holds a lease, though its context does not carry one

	places [levels]place // where the options of each level are given
	given  [levels]optionSet
}

// A waitLimit is how long a call waits, or how often it tries. The zero waitLimit is that of a call that
// tries once.
type waitLimit struct {
	wait        time.Duration // unbounded: until the context ends
	attempts    int           // zero: the call queues
	every       time.Duration // between two attempts
	hasAttempts bool          // Attempts was given, and no Wait at a nearer level
	conflicting bool          // Attempts and Wait were given at the same level
	once        bool          // the call tries once, whatever the options of the outer levels are
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

// with returns the settings of the next level.
func (s settings) with(at level, options []Option) settings {
	if len(options) == 0 {
		return s // without a heap allocation
	}
	return s.apply(at, options)
}

// tryOnce returns the settings of a call that tries once.
func (s settings) tryOnce() settings {
	s.limit.once = true
	if s.places[atCall] == toCall {
		s.places[atCall] = toTry
	}
	return s
}

// ofOnce returns the settings of a periodic job.
func (s settings) ofOnce() settings {
	s.places[atLock], s.places[atCall] = toOnce, toOnceDo
	return s
}

// withoutLimit returns the settings without Wait and Attempts.
func (s settings) withoutLimit() settings {
	s.limit = waitLimit{wait: unbounded, conflicting: s.limit.conflicting}
	return s
}

// apply applies the options of one level. Wait and Attempts replace each other if they come
// from different levels. At the same level they conflict.
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

// set sets the value of one option. It returns what was given by that.
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

// TTL sets how long the store keeps a lease that is not renewed: a crash of the holder
// blocks the others for this long. It is from 10 ms to 24 h; the default is 30 s. It does
// not limit the work while renewal is on, which is the default.
//
// A lease that a hand-off has granted starts with 5 s, or TTL if that is shorter. Its first
// renewal, within 2 s, gives it the whole TTL.
func TTL(d time.Duration) Option { return Option{id: ttlOption, duration: d} }

// Wait limits how long a call queues. Zero tries once. A negative value is ErrInvalid, and so
// is one below 1 ms, which probably lacks its unit. By default a call queues until its context
// ends. Wait replaces Attempts of an outer level. Wait and Attempts at the same level are
// ErrInvalid, and so is Wait given to Once or to a Try call.
func Wait(d time.Duration) Option { return Option{id: waitOption, duration: d} }

// Timeout limits one store operation, its retries included, whatever the settings of the
// Redis client are. It is at least 1 ms; the default is 1 s. It does not limit renewals,
// which wait for their answers as long as the lease lasts.
func Timeout(d time.Duration) Option { return Option{id: timeoutOption, duration: d} }

// NoRenew turns renewal off: the lease ends when its TTL has passed, unless Extend
// raises it.
func NoRenew() Option { return Option{id: noRenewOption} }

// MaxHold limits how long a lease is renewed, so that a hung worker cannot hold a name
// for ever. After d the lease is lost and the name is free. It is at least 10 ms; zero,
// the default, means no limit.
func MaxHold(d time.Duration) Option { return Option{id: maxHoldOption, duration: d} }

// MinHold keeps the name unavailable for at least d after the lock was acquired, even if
// it is unlocked earlier or its holder crashes. It is for jobs that must not run twice on
// machines whose clocks differ. It is from 1 ms to 24 h; zero, the default, means none. It is
// ErrInvalid for Once, whose interval has this effect, and for Yield.
//
// If MinHold is longer than the TTL, the lease starts with MinHold as its TTL. A lease
// from a hand-off gets that TTL with its first renewal, within 2 s.
func MinHold(d time.Duration) Option { return Option{id: minHoldOption, duration: d} }

// Attempts tries n times, with a pause of every between the tries, and does not queue. So
// the first try that finds the name free wins, however long others have tried. n is at
// least 1, and every is zero or at least 1 ms. Attempts replaces Wait of an outer level. At
// the same level they are ErrInvalid, and so is Attempts given to Once or to a Try call.
func Attempts(n int, every time.Duration) Option {
	return Option{id: attemptsOption, number: n, duration: every}
}

// Label sets a text that Inspect shows with the token, for operators. A leader can publish its address
// in it. It is at most 128 bytes of printable UTF-8 without spaces.
func Label(text string) Option { return Option{id: labelOption, text: text} }

// Reentrant lets a call use the lease that its context already carries, if that lease
// holds at least what the call requests. A reader does not become a writer in this way
// (see RWMutex.TryUpgrade). The name is free after as many Unlocks as Locks. Without this
// option such a call returns ErrReentrant. It is ErrInvalid for Yield.
func Reentrant() Option { return Option{id: reentrantOption} }

// OwnerToken sets the owner token for one call, such as a request id, so that another process
// can attach to the lease. It is a secret of the owner, not a fencing token: see Lease.Fence.
// All calls with the same token on the same name are the same owner. So a token must be unique
// to one piece of work and hard to guess. It is 1 to 256 bytes of printable UTF-8 without
// spaces. OwnerToken is for one call: given to New, a lock, Wrap or a Locker it is ErrInvalid.
//
// While a call or a lease of this Client has a token on a name, another call with this token
// on this name returns ErrReentrant. A lease has its token until its last Unlock, also after a
// loss. The same token on several names is allowed.
//
// The same Client may use a token again after an error or after Unlock, to retry that
// piece of work. The new call first waits until the earlier one is cancelled at the store:
// at most two operation timeouts plus 100 ms. If that takes longer it returns
// ErrUnavailable. A different Client or process must not use the token again until the
// TTL plus one second has passed: a late request of the first one could end its lease.
// To use a lease whose token dibs made, call Attach; do not give that token here.
func OwnerToken(token string) Option { return Option{id: ownerTokenOption, text: token} }

// RetryFailed ends the interval of a Once if its function returns an error or panics. The next call of
// Do then runs the job again at once, also that of another process. The lease must still be held, and
// its release must reach the store. After a crash the interval lasts.
//
// Without it, a failed run also uses up its interval, because most jobs that fail would fail in each
// process, one after another. Use RetryFailed if the next attempt can succeed, and make the job
// tolerate a run that was done in part. It is for Once only.
func RetryFailed() Option { return Option{id: retryFailedOption} }

// Observe adds hooks. Those of outer levels run before these. Hooks.Renewed and Hooks.Degraded are
// for New only: given to a lock or a call they are ErrInvalid.
func Observe(hooks Hooks) Option { return Option{id: observeOption, hooks: &hooks} }

const maxLabel = 128

// check validates the names and the settings of a request before anything is sent.
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

// checkDefaults validates the options that were given to New.
func (s *settings) checkDefaults() error {
	if err := s.checkMeaning(""); err != nil {
		return err
	}
	if what, why := s.badValue(); what != "" {
		return invalid("%s given to New: %s", what, why)
	}
	return nil
}

// checkTimeout validates the Timeout that was given to New.
func (s *settings) checkTimeout() error {
	if s.timeout < time.Millisecond {
		return invalid("Timeout %v given to New: below 1ms", s.timeout)
	}
	return nil
}

// badValue returns a value that is not valid, and why; or nothing.
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
	case s.places[atCall] != toOnceDo && (s.minHold < 0 || s.minHold > driver.MaxTTL): // Once has checked its interval
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

// lacksUnit reports whether a duration is so short that its unit was probably forgotten, as
// in Wait(3).
func lacksUnit(d time.Duration) bool { return d > 0 && d < time.Millisecond }

const noUnit = "below 1ms; is the unit missing?"

func isTTL(d time.Duration) bool { return d >= driver.MinTTL && d <= driver.MaxTTL }

var notTTL = fmt.Sprintf("not within %v to %v", driver.MinTTL, driver.MaxTTL)

// checkTTL checks a duration that the store keeps a name for. what is its name for the user.
func checkTTL(what, name string, ttl time.Duration) error {
	if !isTTL(ttl) {
		return invalid("%s %v of %q: %s", what, ttl, name, notTTL)
	}
	return nil
}
