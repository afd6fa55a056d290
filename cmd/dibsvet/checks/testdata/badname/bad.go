// Package badname makes requests that dibs rejects.
package badname

import (
	"context"
	"strings"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/memstore"
)

const (
	empty = ""
	long  = "0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789" +
		"0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789" +
		"0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789" +
		"0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789" +
		"0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789" +
		"0123456789012"
	longLabel = "01234567890123456789012345678901234567890123456789012345678901234"
)

func nothing(context.Context) error { return nil }

func names(ctx context.Context, locks *dibs.Client) {
	locks.Mutex("")                         // want `dibs rejects this: empty name`
	locks.RWMutex(empty)                    // want `empty name`
	locks.Election(long)                    // want `of 513 bytes: more than 512`
	locks.Semaphore("\xff", 2)              // want `not UTF-8`
	locks.Once("", time.Hour)               // want `empty name`
	locks.All("a", "")                      // want `empty name`
	locks.All()                             // want `multi-lock on 0 names: not within 1 to 100`
	locks.Attach("", "token")               // want `empty name`
	locks.Attach("a", "")                   // want `empty token`
	locks.Attach("a", "two words")          // want `printable UTF-8 without spaces`
	locks.Inspect(ctx, "")                  // want `empty name`
	locks.Revoke(ctx, "", 1, "why")         // want `empty name`
	locks.Revoke(ctx, "a", 0, "why")        // want `fence 0`
	locks.Revoke(ctx, "a", 1, "two\nlines") // want `want one line of printable UTF-8`
	dibs.ParseOptions("ttl=5ms")            // want `TTL 5ms of "options": not within 10ms to 24h0m0s`
	dibs.ParseOptions("ttl=10s ttl=20s")    // want `option "ttl" is given twice`
}

func numbers(ctx context.Context, locks *dibs.Client, name string) {
	locks.Semaphore(name, 0)                   // want `semaphore "…" of 0 permits: not within 1 to 2147483647`
	locks.Semaphore(name, -1)                  // want `of -1 permits`
	locks.Semaphore("a", 4).Acquire(ctx, 5)    // want `5 permits of semaphore "a": not within 1 to its 4`
	locks.Semaphore("a", 4).TryAcquire(ctx, 0) // want `0 permits of semaphore "a": not within 1 to its 4`
	locks.Once("a", 5*time.Millisecond)        // want `interval 5ms of Once "…": not within 10ms to 8784h0m0s`
	locks.Once("a", 367*24*time.Hour)          // want `interval 8808h0m0s of Once "…": not within 10ms to 8784h0m0s`
	partner := locks.Semaphore("api:partner", 2)
	partner.Acquire(ctx, 3) // want `3 permits of semaphore "api:partner": not within 1 to its 2`
}

func options() []dibs.Option {
	return []dibs.Option{
		dibs.TTL(5 * time.Millisecond), // want `TTL 5ms of "…": not within 10ms to 24h0m0s`
		dibs.TTL(48 * time.Hour),       // want `TTL 48h0m0s`
		dibs.TTL(20),                   // want `TTL 20ns`
		dibs.Timeout(0),                // want `Timeout 0s of "…": below 1ms`
		dibs.MaxHold(time.Millisecond), // want `MaxHold 1ms of "…": below 10ms`
		dibs.MinHold(-time.Second),     // want `MinHold -1s of "…": not within 0 to 24h0m0s`
		dibs.MinHold(25 * time.Hour),   // want `MinHold 25h0m0s`
		dibs.Wait(-1),                  // want `Wait -1ns of "…": negative; leave it out to wait until the context ends`
		dibs.Wait(3),                   // want `Wait 3ns of "…": below 1ms; is the unit missing\?`
		dibs.MinHold(20),               // want `MinHold 20ns of "…": below 1ms`
		dibs.Attempts(3, 100),          // want `Attempts\(3, 100ns\) of "…": below 1ms`
		dibs.Attempts(0, time.Second),  // want `Attempts\(0, 1s\) of "…": less than 1`
		dibs.Attempts(3, -time.Second), // want `Attempts\(3, -1s\) of "…": negative`
		dibs.Label("two words"),        // want `Label of "…": want at most 64 bytes of printable UTF-8 without spaces`
		dibs.Label(longLabel),          // want `Label of "…"`
		dibs.Token(""),                 // want `Token of "…": empty`
		dibs.Token("two words"),        // want `Token of "…": want at most 256 bytes`
	}
}

func levels(ctx context.Context, lease *dibs.Lease) {
	locks := dibs.New(memstore.New(), dibs.Token("t")) // want `Token given to New: it identifies one lease; give it to the call`
	other := dibs.New(memstore.New(), dibs.MaxHold(time.Minute))
	locks.Mutex("a", dibs.MinHold(time.Hour), dibs.MaxHold(time.Minute))              // want `MaxHold 1m0s of "…": below its MinHold 1h0m0s`
	other.Mutex("a").Lock(ctx, dibs.Wait(time.Second), dibs.Attempts(2, time.Second)) // want `Wait and Attempts of "a": one or the other`
	other.Mutex("a").TryLock(ctx, dibs.Wait(time.Second))                             // want `Wait or Attempts given to a call on "a" that tries once`
	other.RWMutex("a").TryRLock(ctx, dibs.Attempts(2, time.Second))                   // want `Wait or Attempts given to a call on "a" that tries once`
	other.All("a").TryLock(ctx, dibs.Wait(time.Second))                               // want `Wait or Attempts given to a call on "…" that tries once`
	other.Semaphore("a", 1).TryAcquire(ctx, 1, dibs.Wait(0))                          // want `Wait or Attempts given to a call on "a" that tries once`
	other.Once("a", time.Second).Do(ctx, nothing, dibs.Wait(time.Second))             // want `Wait given to a call on "a": the call does not wait`
	other.Mutex("a", dibs.MinHold(time.Hour)).Do(ctx, nothing)                        // want `MaxHold 1m0s of "a": below its MinHold 1h0m0s`
	other.Once("a", time.Hour).Do(ctx, nothing)                                       // want `MaxHold 1m0s of "a": below its interval 1h0m0s`
	other.Once("a", time.Second, dibs.Wait(time.Second))                              // want `Wait given to the lock "…": the call does not wait`
	other.Once("a", time.Second, dibs.MinHold(time.Second))                           // want `MinHold given to the lock "…": only the call that acquires a lease can set it, and Once has its interval instead`
	other.Mutex("a", dibs.RetryFailed())                                              // want `RetryFailed given to the lock "…": only Once has an interval that a failed run uses up`
	other.Mutex("a", dibs.Token("request-1"))                                         // want `Token given to the lock "…": it identifies one lease; give it to the call`
	other.Mutex("a").TryLock(ctx, dibs.NoRenew(), dibs.Wait(time.Second))             // want `Wait or Attempts given to a call on "a" that tries once`
	lease.Extend(ctx, time.Millisecond)                                               // want `TTL 1ms of "…": not within 10ms to 24h0m0s`
	dibs.Call(ctx, other.Mutex(strings.ToLower("A")), number, dibs.TTL(0))            // want `TTL 0s of "…"`
}

func combinations(ctx context.Context) {
	dibs.New(memstore.New(), dibs.Wait(time.Second), dibs.Attempts(2, time.Second)).Close() // want `Wait and Attempts of "…": one or the other`
	locks := dibs.New(memstore.New())
	locks.Election("a", dibs.Wait(time.Second), dibs.Attempts(2, 0)).Run(ctx, nothing)           // want `Wait and Attempts of "…": one or the other`
	dibs.Call(ctx, locks.Mutex("a", dibs.MinHold(time.Hour)), number, dibs.MaxHold(time.Minute)) // want `MaxHold 1m0s of "a": below its MinHold 1h0m0s`
	locks.Attach("a", "token", dibs.MinHold(time.Second))                                        // want `MinHold given to Attach of "…": only the call that acquires a lease can set it`
	locks.Attach("a", "token", dibs.Wait(time.Second))                                           // want `Wait given to Attach of "…": the call does not wait`
	locks.Attach("a", "token", dibs.Reentrant())                                                 // want `Reentrant given to Attach of "…": an attached lease is acquired already`
}

func number(context.Context) (int, error) { return 1, nil }

// Another package may declare a Mutex.
type namespace struct{ *dibs.Client }

func embedded(n namespace) { n.Mutex("") } // want `empty name`
