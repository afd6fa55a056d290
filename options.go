package dibs

import (
	"cmp"
	"fmt"
	"math"
	"math/bits"
	"time"

	"github.com/dibslock/dibs/driver"
)

// An Option configures a lock. There are three levels, from the outermost to the nearest:
//
//   - New sets the defaults of all locks of the Client,
//   - Client.Mutex and the like set it for one lock,
//   - Lock, TryLock, Do and Call for one call.
//
// The nearest level wins.
//
// An option with a bad value makes the call return ErrInvalid. So does an option that is
// given to a lock or a call for which it has no meaning. Examples are Wait given to a Try
// call, and Token given to a lock. A default of the Client applies to those locks for which it has
// a meaning.
type Option func(*settings)

// settings are the values that options set. They are copied, never shared.
type settings struct {
	ttl       time.Duration
	limit     waitLimit
	timeout   time.Duration
	maxHold   time.Duration
	minHold   time.Duration
	noRenew   bool
	reentrant bool
	label     string
	token     string // of the caller's choice, or empty

	retryFailed bool
	hooks       *hookChain

	use   use // what the settings are for
	given [levels]optionSet
	now   optionSet // of the level whose options are being applied
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
	return settings{ttl: 30 * time.Second, limit: waitLimit{wait: unbounded}, timeout: driver.OperationTimeout}
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
	s.now = 0
	for _, set := range options {
		if set != nil {
			set(&s)
		}
	}
	switch waits, attempts := s.now.has(waitOption), s.now.has(attemptsOption); {
	case waits && attempts:
		s.limit.conflicting = true
	case waits:
		s.limit = waitLimit{wait: s.limit.wait}
	case attempts:
		s.limit.wait, s.limit.conflicting = unbounded, false
	}
	s.given[at] |= s.now
	return s
}

// TTL sets how long the store keeps a lease that is not renewed: a crash of the holder
// blocks the others for this long. It is from 10 ms to 24 h; the default is 30 s. It does
// not limit the work while renewal is on, which is the default.
//
// A lease that a hand-off has granted starts with 5 s, or TTL if that is shorter. Its first
// renewal, within 2 s, gives it the whole TTL.
func TTL(d time.Duration) Option {
	return func(s *settings) { s.ttl = d; s.now.add(ttlOption) }
}

// Wait limits how long a call queues. Zero tries once. A negative value is ErrInvalid, and so
// is one below 1 ms, which probably lacks its unit. By default a call queues until its context
// ends. Wait replaces Attempts of an outer level. Wait and Attempts at the same level are
// ErrInvalid, and so is Wait given to Once or to a Try call.
func Wait(d time.Duration) Option {
	return func(s *settings) { s.limit.wait = min(max(d, unbounded+1), farFuture); s.now.add(waitOption) }
}

// Timeout limits one store operation, its retries included, whatever the settings of the
// Redis client are. It is at least 1 ms; the default is 1 s. It does not limit renewals,
// which wait for their answers as long as the lease lasts.
func Timeout(d time.Duration) Option {
	return func(s *settings) { s.timeout = min(d, farFuture); s.now.add(timeoutOption) }
}

// NoRenew turns renewal off: the lease ends when its TTL has passed, unless Extend
// raises it.
func NoRenew() Option { return func(s *settings) { s.noRenew = true; s.now.add(noRenewOption) } }

// MaxHold limits how long a lease is renewed, so that a hung worker cannot hold a name
// for ever. After d the lease is lost and the name is free. It is at least 10 ms; zero,
// the default, means no limit.
func MaxHold(d time.Duration) Option {
	return func(s *settings) { s.maxHold = min(d, farFuture); s.now.add(maxHoldOption) }
}

// MinHold keeps the name unavailable for at least d after the lock was acquired, even if
// it is unlocked earlier or its holder crashes. It is for jobs that must not run twice on
// machines whose clocks differ. It is from 1 ms to 24 h; zero, the default, means none. Once has its
// interval instead, and rejects MinHold.
//
// If MinHold is longer than the TTL, the lease starts with MinHold as its TTL. A lease
// from a hand-off gets that TTL with its first renewal, within 2 s.
func MinHold(d time.Duration) Option {
	return func(s *settings) { s.minHold = d; s.now.add(minHoldOption) }
}

// Attempts tries n times, with a pause of every between the tries, and does not queue. So
// the first try that finds the name free wins, however long others have tried. n is at
// least 1, and every is zero or at least 1 ms. Attempts replaces Wait of an outer level. At
// the same level they are ErrInvalid, and so is Attempts given to Once or to a Try call.
func Attempts(n int, every time.Duration) Option {
	return func(s *settings) {
		s.limit.attempts, s.limit.every, s.limit.hasAttempts = n, min(every, farFuture), true
		s.now.add(attemptsOption)
	}
}

// Label sets a text that Inspect shows with the token, for operators. It is at most 64
// bytes of printable UTF-8 without spaces.
func Label(text string) Option {
	return func(s *settings) { s.label = text; s.now.add(labelOption) }
}

// Reentrant lets a call use the lease that its context already carries, if that lease
// holds at least what the call requests. A reader does not become a writer in this way
// (see RWMutex.TryUpgrade). The name is free after as many Unlocks as Locks. Without this
// option such a call returns ErrReentrant.
func Reentrant() Option {
	return func(s *settings) { s.reentrant = true; s.now.add(reentrantOption) }
}

// Token sets the owner token for one call, such as a request id, so that another process
// can attach to the lease. It is a secret of the owner, not a fencing token: see Lease.Fence.
// All calls with the same token on the same name are the same owner. So a token must be unique
// to one piece of work and hard to guess. It is 1 to 256 bytes of printable UTF-8 without
// spaces. Token is for a call only: given to New or to a lock it is ErrInvalid.
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
func Token(token string) Option {
	return func(s *settings) { s.token = token; s.now.add(tokenOption) }
}

// RetryFailed ends the interval of a Once if its function returns an error or panics. The next call of
// Do then runs the job again at once, also that of another process. The lease must still be held, and
// its release must reach the store. After a crash the interval lasts.
//
// Without it, a failed run also uses up its interval, because most jobs that fail would fail in each
// process, one after another. Use RetryFailed if the next attempt can succeed, and make the job
// tolerate a run that was done in part. It is for Once only.
func RetryFailed() Option {
	return func(s *settings) { s.retryFailed = true; s.now.add(retryFailedOption) }
}

// Observe adds hooks. Those of outer levels run too, before these.
func Observe(hooks Hooks) Option {
	return func(s *settings) { s.hooks = &hookChain{hooks: hooks, outer: s.hooks}; s.now.add(observeOption) }
}

const maxLabel = 64

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
	return cmp.Or(s.checkMeaning(name), s.checkValues(name))
}

// checkValues validates the values of a request for a name.
func (s *settings) checkValues(name string) error {
	if err := checkTTL("TTL", name, s.ttl); err != nil {
		return err
	}
	if err := s.checkTimeout(name); err != nil {
		return err
	}
	switch {
	case s.maxHold != 0 && s.maxHold < driver.MinTTL:
		return invalid("MaxHold %v of %q: below %v", s.maxHold, name, driver.MinTTL)
	case s.use != ofOnce && (s.minHold < 0 || s.minHold > driver.MaxTTL): // Once has checked its interval
		return invalid("MinHold %v of %q: not within 0 to %v", s.minHold, name, driver.MaxTTL)
	case lacksUnit(s.minHold):
		return invalid("MinHold %v of %q: below 1ms; is the unit missing?", s.minHold, name)
	case s.maxHold != 0 && s.maxHold < s.minHold:
		return invalid("MaxHold %v of %q: below its MinHold %v", s.maxHold, name, s.minHold)
	case s.limit.wait < 0 && s.limit.wait != unbounded:
		return invalid("Wait %v of %q: negative; leave it out to wait until the context ends", s.limit.wait, name)
	case lacksUnit(s.limit.wait):
		return invalid("Wait %v of %q: below 1ms; is the unit missing?", s.limit.wait, name)
	case s.limit.once && s.given[atCall]&(1<<waitOption|1<<attemptsOption) != 0:
		return invalid("Wait or Attempts given to a call on %q that tries once", name)
	case s.limit.conflicting:
		return invalid("Wait and Attempts of %q: one or the other", name)
	case s.limit.hasAttempts && s.limit.attempts < 1:
		return invalid("Attempts(%d, %v) of %q: less than 1", s.limit.attempts, s.limit.every, name)
	case s.limit.hasAttempts && s.limit.every < 0:
		return invalid("Attempts(%d, %v) of %q: negative", s.limit.attempts, s.limit.every, name)
	case lacksUnit(s.limit.every):
		return invalid("Attempts(%d, %v) of %q: below 1ms; is the unit missing?", s.limit.attempts, s.limit.every, name)
	case s.label != "" && !isPlain(s.label, maxLabel):
		return invalid("Label of %q: want at most %d bytes of printable UTF-8 without spaces", name, maxLabel)
	case s.token == "" && s.given[atCall].has(tokenOption):
		return invalid("Token of %q: empty", name)
	case s.token != "" && !isPlain(s.token, maxToken):
		return invalid("Token of %q: want at most %d bytes of printable UTF-8 without spaces", name, maxToken)
	}
	return nil
}

// lacksUnit reports whether a duration is so short that its unit was probably forgotten, as
// in Wait(3).
func lacksUnit(d time.Duration) bool { return d > 0 && d < time.Millisecond }

func (s *settings) checkTimeout(name string) error {
	if s.timeout < time.Millisecond {
		return invalid("Timeout %v of %q: below 1ms", s.timeout, name)
	}
	return nil
}

// checkTTL checks a duration that the store keeps a name for. what is its name for the user.
func checkTTL(what, name string, ttl time.Duration) error {
	if ttl < driver.MinTTL || ttl > driver.MaxTTL {
		return invalid("%s %v of %q: not within %v to %v", what, ttl, name, driver.MinTTL, driver.MaxTTL)
	}
	return nil
}

// checkMeaning rejects options that have no meaning where they were given.
func (s *settings) checkMeaning(name string) error {
	for at, left := range s.given {
		for ; left != 0; left &= left - 1 {
			rule := &optionRules[bits.TrailingZeros16(uint16(left))]
			if level(at) < rule.from || level(at) > atClient && rule.of&(1<<s.use) == 0 {
				return invalid("%s given to %s: %s", rule.name, s.place(level(at), name), rule.why)
			}
		}
	}
	return nil
}

// place describes where an option was given.
func (s *settings) place(at level, name string) string {
	switch {
	case at == atClient:
		return "New"
	case s.use == ofAttach:
		return fmt.Sprintf("Attach of %q", name)
	case at == atLock:
		return fmt.Sprintf("the lock %q", name)
	default:
		return fmt.Sprintf("a call on %q", name)
	}
}
