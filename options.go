package dibs

import (
	"math"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/dibslock/dibs/driver"
)

// An Option adjusts how a name is held. It may be given to New for all names, to
// Client.Mutex and the like for one name, and to Lock, TryLock, Do or Call for one call; the
// nearer wins.
type Option func(*settings)

// settings are what options set. They are copied, never shared.
type settings struct {
	ttl           time.Duration
	wait          time.Duration // unbounded: as long as the context lasts
	timeout       time.Duration
	maxHold       time.Duration
	minHold       time.Duration
	attempts      int  // zero: queue
	hasAttempts   bool // Attempts was given, and no nearer Wait
	conflicting   bool // Attempts and Wait were given side by side
	every         time.Duration
	noRenew       bool
	reentrant     bool
	label         string
	token         string
	hasToken      bool // Token was given
	clientToken   bool // and to New, where it would be that of all leases
	hasWaitOption bool // Wait or Attempts was given at the nearest level
	hooks         *Hooks
	partOfMulti   bool // of a lease that is taken in several steps: its taker announces it
}

const (
	unbounded = time.Duration(math.MinInt64) // a wait for as long as the context lasts
	farFuture = time.Duration(1 << 61)       // longer than any process lives; sums do not overflow
)

func defaults() settings {
	return settings{ttl: 30 * time.Second, wait: unbounded, timeout: time.Second}
}

func clientDefaults(options []Option) settings {
	s := defaults().with(options)
	s.clientToken = s.hasToken
	return s
}

func (s settings) with(options []Option) settings {
	if len(options) == 0 {
		s.hasWaitOption = false
		return s // and not by way of the heap
	}
	return s.apply(options)
}

// set applies the options of one level. Wait and Attempts replace each other, as the
// nearer one; on one level they contradict each other.
func (s settings) apply(options []Option) settings {
	outer := s
	s.wait, s.hasAttempts, s.conflicting = unbounded, false, false
	for _, set := range options {
		if set != nil {
			set(&s)
		}
	}
	s.hasWaitOption = s.wait != unbounded || s.hasAttempts
	switch waits := s.wait != unbounded; {
	case waits && s.hasAttempts:
		s.conflicting = true
	case waits:
		s.attempts, s.every = 0, 0
	case !s.hasAttempts:
		s.wait, s.hasAttempts, s.conflicting = outer.wait, outer.hasAttempts, outer.conflicting
	}
	return s
}

// TTL is how long the store keeps a lease that nobody renews: a crash of the
// holder costs the others that much. From 10 ms to 24 h; the default is 30 s.
// With renewal on, which is the default, it does not bound the work.
func TTL(d time.Duration) Option { return func(s *settings) { s.ttl = d } }

// Wait bounds how long to queue for a name. Zero tries once; less is ErrInvalid. The
// default is to wait until the context ends. It replaces Attempts of a level above; side
// by side they are ErrInvalid.
func Wait(d time.Duration) Option {
	return func(s *settings) { s.wait = min(max(d, unbounded+1), farFuture) }
}

// Timeout bounds one operation on the store, its retries included, whatever the
// Redis client's own settings are. From 1 ms; the default is 1 s.
func Timeout(d time.Duration) Option { return func(s *settings) { s.timeout = min(d, farFuture) } }

// NoRenew makes the TTL a hard end: the lease is not renewed, only Extend
// prolongs it.
func NoRenew() Option { return func(s *settings) { s.noRenew = true } }

// MaxHold bounds how long a lease is renewed, so that a hung worker does not
// hold a name for ever: after d the lease is lost and the name is free.
// At least 10 ms; zero, the default, does not bound it.
func MaxHold(d time.Duration) Option { return func(s *settings) { s.maxHold = min(d, farFuture) } }

// MinHold keeps the name taken for at least d after it was acquired, also when it
// is unlocked before, or its holder dies: for jobs that must not run twice on
// machines whose clocks differ. At most 24 h. Where it is longer than the TTL, it is
// the TTL that the lease begins with; that of a lease that was handed on, with its
// first renewal, within 2 s.
func MinHold(d time.Duration) Option { return func(s *settings) { s.minHold = d } }

// Attempts tries n times, every apart, and does not queue: who comes first is
// served first, however long others have tried. n is at least 1. It replaces Wait of a
// level above; side by side they are ErrInvalid.
func Attempts(n int, every time.Duration) Option {
	return func(s *settings) { s.attempts, s.every, s.hasAttempts = n, every, true }
}

// Label is shown to operators beside the token. At most 64 bytes of printable
// UTF-8 without spaces.
func Label(text string) Option { return func(s *settings) { s.label = text } }

// Reentrant lets a call whose context already holds the name enter again, if that
// lease holds at least what the call asks for: a reader does not become a writer by
// it (see RWMutex.TryUpgrade). The name is free when as many Unlocks as Locks were
// called. Without it such a call returns ErrReentrant.
func Reentrant() Option { return func(s *settings) { s.reentrant = true } }

// Token sets the owner's identity for one call, such as a request id, so that
// another process can attach to the lease by it. Whoever uses the same token on
// the same name is the same owner: it must be unique to one piece of work and
// hard to guess. 1 to 256 bytes of printable UTF-8 without spaces.
//
// The same Client may use a token again after an error or after Unlock, to retry
// that piece of work: such a call first waits until the earlier one is undone at the
// store, for at most two operation timeouts and a little, and returns ErrUnavailable if
// that takes longer. A different Client or process must not use the token again before
// the TTL plus a second has passed: a late request of the first one could end its lease.
func Token(token string) Option { return func(s *settings) { s.token, s.hasToken = token, true } }

// Observe sets the hooks, which replace those of the level above. Renewed and
// Degraded concern many leases: only those given to New are called.
func Observe(h Hooks) Option { return func(s *settings) { s.hooks = &h } }

const (
	maxToken = 256
	maxLabel = 64
)

// checkOnce rejects Wait and Attempts that were given to a call that tries once. Those of
// an outer level do not concern it.
func (s *settings) checkOnce(name string, once bool) error {
	if once && s.hasWaitOption {
		return invalid("Wait or Attempts given to a call on %q that tries once", name)
	}
	return nil
}

// check finds what is wrong with a request before anything is sent.
func (s *settings) check(name string, more ...string) error {
	if err := driver.CheckName(name); err != nil {
		return err
	}
	for _, name := range more {
		if err := driver.CheckName(name); err != nil {
			return err
		}
	}
	if err := checkTTL(name, s.ttl); err != nil {
		return err
	}
	if err := s.checkTimeout(name); err != nil {
		return err
	}
	switch {
	case s.maxHold != 0 && s.maxHold < driver.MinTTL:
		return invalid("MaxHold %v of %q: below %v", s.maxHold, name, driver.MinTTL)
	case s.minHold < 0 || s.minHold > driver.MaxTTL:
		return invalid("MinHold %v of %q: not within 0 to %v", s.minHold, name, driver.MaxTTL)
	case s.maxHold != 0 && s.maxHold < s.minHold:
		return invalid("MaxHold %v of %q: below its MinHold %v", s.maxHold, name, s.minHold)
	case s.wait < 0 && s.wait != unbounded:
		return invalid("Wait %v of %q: negative; leave it out to wait until the context ends", s.wait, name)
	case s.conflicting:
		return invalid("Wait and Attempts of %q: one or the other", name)
	case s.hasAttempts && s.attempts < 1:
		return invalid("Attempts(%d, %v) of %q: less than 1", s.attempts, s.every, name)
	case s.hasAttempts && s.every < 0:
		return invalid("Attempts(%d, %v) of %q: negative", s.attempts, s.every, name)
	case s.clientToken:
		return invalid("Token given to New: it identifies one lease; give it to the call")
	case s.hasToken && s.token == "":
		return invalid("Token of %q: empty", name)
	case s.label != "" && !plain(s.label, maxLabel):
		return invalid("Label of %q: want at most %d bytes of printable UTF-8 without spaces", name, maxLabel)
	case s.token != "" && !plain(s.token, maxToken):
		return invalid("Token of %q: want at most %d bytes of printable UTF-8 without spaces", name, maxToken)
	}
	return nil
}

// checkAsk finds what is wrong with a question about a name.
func (s *settings) checkInspect(name string) error {
	if err := driver.CheckName(name); err != nil {
		return err
	}
	return s.checkTimeout(name)
}

func (s *settings) checkTimeout(name string) error {
	if s.timeout < time.Millisecond {
		return invalid("Timeout %v of %q: below 1ms", s.timeout, name)
	}
	return nil
}

func checkTTL(name string, ttl time.Duration) error {
	if ttl < driver.MinTTL || ttl > driver.MaxTTL {
		return invalid("TTL %v of %q: not within %v to %v", ttl, name, driver.MinTTL, driver.MaxTTL)
	}
	return nil
}

// plain reports whether s can stand in a line of text between spaces.
func plain(s string, limit int) bool {
	if len(s) > limit || !utf8.ValidString(s) {
		return false
	}
	for _, r := range s {
		if unicode.IsSpace(r) || !unicode.IsPrint(r) {
			return false
		}
	}
	return true
}
