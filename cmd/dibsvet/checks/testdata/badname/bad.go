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
	longLabel = "012345678901234567890123456789012345678901234567890123456789012301234567890123456789012345678901234567890123456789012345678901234"
)

func nothing(context.Context) error { return nil }

func names(ctx context.Context, locks *dibs.Client) {
	locks.Mutex("")                                             // want `dibs rejects this: empty name`
	locks.RWMutex(empty)                                        // want `empty name`
	locks.Election(long)                                        // want `of 513 bytes: more than 512`
	locks.Semaphore("\xff", 2)                                  // want `not UTF-8`
	locks.Once("", time.Hour)                                   // want `empty name`
	locks.All([]string{"a", ""})                                // want `empty name`
	locks.All(nil)                                              // want `multi-lock on 0 names: not within 1 to 100`
	dibs.NewHandle("", "token")                                 // want `empty name`
	dibs.NewHandle("a", "")                                     // want `owner token of "…": want 1 to 256 bytes`
	dibs.NewHandle("a", "two words")                            // want `printable UTF-8 without spaces`
	locks.Inspect(ctx, "")                                      // want `empty name`
	locks.Revoke(ctx, "", dibs.Holder{Fence: 1}, "why")         // want `empty name`
	locks.Revoke(ctx, "a", dibs.Holder{}, "why")                // want `neither a fence nor a token`
	locks.Revoke(ctx, "a", dibs.Holder{Fence: 1}, "two\nlines") // want `want one line of printable UTF-8`
	dibs.ParseOptions("ttl=5ms")                                // want `TTL 5ms: not within 10ms to 24h0m0s`
	dibs.ParseOptions("ttl=10s ttl=20s")                        // want `option "ttl" is given twice`
}

func numbers(ctx context.Context, locks *dibs.Client, name string) {
	locks.Semaphore(name, 0)                        // want `semaphore "…" of 0 permits: not within 1 to 2147483647`
	locks.Semaphore(name, -1)                       // want `of -1 permits`
	locks.Semaphore("a", 4).Permits(5).Lock(ctx)    // want `5 permits of semaphore "a": not within 1 to its 4`
	locks.Semaphore("a", 4).Permits(0).TryLock(ctx) // want `0 permits of semaphore "a": not within 1 to its 4`
	locks.Once("a", 5*time.Millisecond)             // want `interval 5ms of Once "…": not within 10ms to 8784h0m0s`
	locks.Once("a", 367*24*time.Hour)               // want `interval 8808h0m0s of Once "…": not within 10ms to 8784h0m0s`
	partner := locks.Semaphore("api:partner", 2)
	partner.Permits(3) // want `3 permits of semaphore "api:partner": not within 1 to its 2`
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
		dibs.Label("two words"),        // want `Label of "…": want at most 128 bytes of printable UTF-8 without spaces`
		dibs.Label(longLabel),          // want `Label of "…"`
		dibs.OwnerToken(""),            // want `owner token of "…": empty`
		dibs.OwnerToken("two words"),   // want `owner token of "…": want at most 256 bytes`
	}
}

func levels(ctx context.Context, lease *dibs.Lease) {
	locks := dibs.New(memstore.New(), dibs.OwnerToken("t")) // want `OwnerToken given to New: it identifies one lease; give it to the call that acquires it, such as Lock or Do`
	other := dibs.New(memstore.New(), dibs.MaxHold(time.Minute))
	locks.Mutex("a", dibs.MinHold(time.Hour), dibs.MaxHold(time.Minute))              // want `MaxHold 1m0s of "…": below its MinHold 1h0m0s`
	other.Mutex("a").Lock(ctx, dibs.Wait(time.Second), dibs.Attempts(2, time.Second)) // want `Wait and Attempts of "a": give Wait or Attempts, not both`
	other.Mutex("a").TryLock(ctx, dibs.Wait(time.Second))                             // want `Wait given to a Try call on "a": it does not wait; give it to Lock or Do`
	other.RWMutex("a").Reader().TryLock(ctx, dibs.Attempts(2, time.Second))           // want `Attempts given to a Try call on "a": it tries once; give it to Lock or Do`
	other.All([]string{"a"}).TryLock(ctx, dibs.Wait(time.Second))                     // want `Wait given to a Try call on "…": it does not wait; give it to Lock or Do`
	other.Semaphore("a", 1).Permits(1).TryLock(ctx, dibs.Wait(0))                     // want `Wait given to a Try call on "a": it does not wait; give it to Lock or Do`
	other.Once("a", time.Second).Do(ctx, nothing, dibs.Wait(time.Second))             // want `Wait given to Do of the periodic job "a": it does not wait; give it to Lock or Do of another lock`
	other.Mutex("a", dibs.MinHold(time.Hour)).Do(ctx, nothing)                        // want `MaxHold 1m0s of "a": below its MinHold 1h0m0s`
	other.Once("a", time.Hour).Do(ctx, nothing)                                       // want `MaxHold 1m0s of "a": below its interval 1h0m0s`
	other.Once("a", time.Second, dibs.Wait(time.Second))                              // want `Wait given to the periodic job "…": it does not wait`
	other.Once("a", time.Second, dibs.MinHold(time.Second))                           // want `MinHold given to the periodic job "…": the interval given to Once is its MinHold`
	other.Mutex("a", dibs.RetryFailed())                                              // want `RetryFailed given to the lock "…": it has no interval that a failed run uses up; give it to Once`
	other.Mutex("a", dibs.OwnerToken("request-1"))                                    // want `OwnerToken given to the lock "…": it identifies one lease; give it to the call`
	other.Mutex("a").TryLock(ctx, dibs.NoRenew(), dibs.Wait(time.Second))             // want `Wait given to a Try call on "a": it does not wait; give it to Lock or Do`
	lease.Extend(ctx, time.Millisecond)                                               // want `TTL 1ms of "…": not within 10ms to 24h0m0s`
	dibs.Call(ctx, other.Mutex(strings.ToLower("A")), number, dibs.TTL(0))            // want `TTL 0s of "…"`
}

func combinations(ctx context.Context) {
	dibs.New(memstore.New(), dibs.Wait(time.Second), dibs.Attempts(2, time.Second)).Close() // want `Wait and Attempts of "…": give Wait or Attempts, not both`
	locks := dibs.New(memstore.New())
	locks.Election("a", dibs.Wait(time.Second), dibs.Attempts(2, 0)).Run(ctx, nothing)           // want `Wait and Attempts of "…": give Wait or Attempts, not both`
	dibs.Call(ctx, locks.Mutex("a", dibs.MinHold(time.Hour)), number, dibs.MaxHold(time.Minute)) // want `MaxHold 1m0s of "a": below its MinHold 1h0m0s`
	locks.Attach(ctx, dibs.NewHandle("a", "token"), dibs.MinHold(time.Second))                   // want `MinHold given to Attach of "…": it begins with the lease; give it to Lock or Do`
	locks.Attach(ctx, dibs.NewHandle("a", "token"), dibs.Wait(time.Second))                      // want `Wait given to Attach of "…": it does not wait; give it to Lock or Do`
	locks.Attach(ctx, dibs.NewHandle("a", "token"), dibs.Reentrant())                            // want `Reentrant given to Attach of "…": it enters no lease; give it to Lock or Do`
}

func rules(ctx context.Context, locks *dibs.Client, names []string) {
	locks.All(names, dibs.MinHold(time.Hour), dibs.MaxHold(time.Minute))     // want `MaxHold 1m0s of "…": below its MinHold 1h0m0s`
	locks.All([]string{"a"}, dibs.OwnerToken("request-1"))                   // want `OwnerToken given to the lock "…"`
	locks.Once("a", time.Hour, dibs.MinHold(time.Hour))                      // want `MinHold given to the periodic job "…": the interval given to Once is its MinHold`
	locks.Mutex("a", dibs.Observe(dibs.Hooks{Renewed: renewed}))             // want `Hooks.Renewed given to the lock "…": its event is of many leases; give it to New`
	locks.Mutex("a").Lock(ctx, dibs.Observe(dibs.Hooks{Degraded: degraded})) // want `Hooks.Degraded given to a call on "a": its event is of many leases; give it to New`
	locks.Mutex("a").Do(ctx, func(ctx context.Context) error {
		lease, _ := dibs.LeaseOf(ctx, "a")
		return lease.Yield(ctx, dibs.MinHold(time.Second)) // want `MinHold given to Yield of "…": it begins with the lease; give it to Lock or Do`
	})
}

var (
	renewed  func(context.Context, dibs.Renewed)
	degraded func(context.Context, dibs.Degraded)
)

func number(context.Context) (int, error) { return 1, nil }

// Another package may declare a Mutex.
type namespace struct{ *dibs.Client }

func embedded(n namespace) { n.Mutex("") } // want `empty name`
