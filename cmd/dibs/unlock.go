package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/dashboard/view"
	"github.com/dibslock/dibs/driver"
	"github.com/spf13/cobra"
)

// exitNotHeld is unlock's exit code if the name is not held.
const exitNotHeld = 1

// An unlockRequest holds unlock's flags: which lease on a name to revoke.
type unlockRequest struct {
	name   string
	fence  uint64
	token  string
	force  bool
	reason string
	yes    bool
}

func unlockCmd(a *app) *cobra.Command {
	var u unlockRequest
	c := &cobra.Command{
		Use:   "unlock NAME (--fence N | --token TOKEN | --force --reason TEXT)",
		Short: "Revoke a lease",
		Long: `Revoke a lease on a name, and hand the name off to the first waiter.

    --fence N      revoke the lease with this fence (see "dibs show"), and no
                   newer lease
    --token TOKEN  release the lease with this token, as its owner would
    --force        revoke the current leases, after a confirmation, and no newer
                   ones

The holder is notified at once, with the reason; with --token it finds out at
its next renewal. Its work may go on beside that of the next holder: only the
fence stops its writes.

A lock of another library has no fence. --force ends one if it is a string or a
lock of Redisson, and expires. It deletes the key if that still holds what was
shown. Redisson's waiters are notified as by forceUnlock. A counter, other data,
and a key that never expires are not deleted.

Exit codes: 0 revoked; 1 not held; 75 held by another lease, or the fence is not
known; 125 not a lock, or the store failed; 64 invalid command line.`,
		Example: `  dibs show nightly                      # the holder and its fence
  dibs unlock nightly --fence 1763788260123456
  dibs unlock nightly --force --reason "host web-7 is gone, INC-42"`,
		Args:              argCount(1, 1),
		ValidArgsFunction: a.stores.completeName,
		RunE: func(c *cobra.Command, args []string) error {
			u.name = args[0]
			if err := u.check(c.Flags().Changed, terminal(a.con.in)); err != nil {
				return err
			}
			return a.withStore(func(ctx context.Context, s *opened) error { return u.unlock(ctx, a.con, s) })
		},
	}
	f := c.Flags()
	f.Uint64Var(&u.fence, "fence", 0, "revoke the lease with the fence `N`")
	f.StringVar(&u.token, "token", "", "release the lease with this `TOKEN`")
	f.BoolVar(&u.force, "force", false, "revoke the current leases")
	f.StringVar(&u.reason, "reason", "", "reason, for the holder and the result; required for --force")
	f.BoolVar(&u.yes, "yes", false, "do not ask for confirmation")
	return c
}

func (u unlockRequest) check(given func(flag string) bool, terminal bool) error {
	ways := 0
	for _, flag := range []string{"fence", "token", "force"} {
		if given(flag) {
			ways++
		}
	}
	switch {
	case ways != 1:
		return usage("unlock %q: want exactly one of --fence, --token and --force", u.name)
	case given("fence") && u.fence == 0:
		return usage("unlock %q: no lease has fence 0", u.name)
	case given("token") && u.token == "":
		return usage("unlock %q: --token is empty", u.name)
	case u.force && strings.TrimSpace(u.reason) == "":
		return usage("unlock %q: --force needs a --reason", u.name)
	case u.force && !u.yes && !terminal:
		return usage("unlock %q: --force asks for confirmation, but stdin is not a terminal; pass --yes", u.name)
	}
	if u.token != "" {
		_, err := dibs.NewHandle(u.name, u.token).MarshalText() // it rejects what no lease can have
		return err
	}
	return nil
}

func (u unlockRequest) unlock(ctx context.Context, con *console, s *opened) error {
	seen, err := s.poller().Inspect(ctx, u.name)
	if err != nil {
		return err
	}
	if err := u.checkForeign(s, seen); err != nil {
		return err
	}
	if u.force && len(seen.Holders) > 0 && !u.yes {
		if err := confirm(ctx, con, seen); err != nil {
			return err
		}
	}
	result := view.Unlocked{Schema: view.Schema, Name: u.name, Waiting: seen.Waiting, Reason: u.reason}
	var failed error
	if u.force && seen.Foreign != nil {
		failed = u.endForeign(ctx, s, seen, &result)
	} else {
		result.Ended, failed = u.endLease(ctx, s, seen)
	}
	if failed != nil && len(result.Ended) == 0 {
		return failed
	}
	result.Removed = len(result.Ended) > 0
	current, err := s.poller().Inspect(ctx, u.name)
	if err != nil && !result.Removed {
		return err
	}
	now := time.Now()
	result.Holders = view.StateOf(current, now).Holders
	return errors.Join(printUnlocked(con, result, now), failed)
}

// endLease revokes the lease that u selects and returns its holder.
func (u unlockRequest) endLease(ctx context.Context, s *opened, seen driver.State) (ended []view.Holder, err error) {
	locks := s.client()
	defer locks.Close()
	var done bool
	switch {
	case u.force:
		return u.endAllSeen(ctx, s, locks, seen)
	case u.fence != 0:
		done, err = locks.Revoke(ctx, u.name, dibs.Holder{Fence: u.fence}, u.reason)
	default:
		done, err = s.release(ctx, driver.ReleaseRequest{Name: u.name, Token: u.token})
	}
	if !done {
		return []view.Holder{}, err
	}
	return []view.Holder{u.endedHolder(seen)}, nil
}

// endAllSeen revokes all leases in seen.
func (u unlockRequest) endAllSeen(ctx context.Context, s *opened, locks *dibs.Client, seen driver.State) ([]view.Holder, error) {
	ended := []view.Holder{}
	for _, h := range seen.Holders {
		done, err := u.endSeen(ctx, s, locks, h)
		if err != nil {
			return ended, err
		}
		if done {
			ended = append(ended, view.HolderOf(h, time.Now()))
		}
	}
	return ended, nil
}

// endSeen revokes one lease that was seen, and no newer one.
//
// A store may have neither the fence nor the client of a lease, if the application has chosen its
// token. Such a store does not revoke it, because it cannot notify the holder. So endSeen releases it.
func (u unlockRequest) endSeen(ctx context.Context, s *opened, locks *dibs.Client, h driver.Holder) (bool, error) {
	done, err := locks.Revoke(ctx, u.name, dibs.Holder{Fence: h.Fence, Token: dibs.Token(h.Token)}, u.reason)
	if done || err != nil || h.Fence != 0 {
		return done, err
	}
	return s.release(ctx, driver.ReleaseRequest{Name: u.name, Token: h.Token, Unreserve: h.Reserved})
}

// release releases a lease within --timeout.
func (o *opened) release(ctx context.Context, r driver.ReleaseRequest) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	r.Until = time.Now().Add(o.timeout)
	return o.Release(ctx, r)
}

// endedHolder returns the revoked holder: the holder in seen with its fence or token.
func (u unlockRequest) endedHolder(seen driver.State) view.Holder {
	now := time.Now()
	i := slices.IndexFunc(seen.Holders, func(h driver.Holder) bool {
		return h.Token == u.token || h.Fence != 0 && h.Fence == u.fence
	})
	if i < 0 && len(seen.Holders) == 1 && seen.Holders[0].Fence == 0 {
		i = 0 // the store had not stored its fence yet
	}
	if i < 0 {
		return view.Holder{Token: view.OwnerOf(u.token).Short, Fence: u.fence, Since: view.SinceOf(u.fence, now)}
	}
	h := seen.Holders[i]
	h.Fence = max(h.Fence, u.fence)
	return view.HolderOf(h, now)
}

// confirm asks a person to type the name.
func confirm(ctx context.Context, con *console, seen driver.State) error {
	now := time.Now()
	what := "revoke the lease"
	if seen.Foreign != nil {
		what = "end the foreign lock and delete the key " + view.Safe(seen.Foreign.Key)
	}
	fmt.Fprintf(con.err, "%sthe work of the holder may go on; type the name to %s: ", view.StateOf(seen, now).Text(now, widthOf(con.err)), what)
	typed := make(chan string, 1)
	go func() {
		line, err := bufio.NewReader(con.in).ReadString('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			line = ""
		}
		typed <- strings.TrimRight(line, "\r\n")
	}()
	select {
	case <-ctx.Done():
		fmt.Fprintln(con.err)
		return context.Cause(ctx)
	case line := <-typed:
		if line != seen.Name && line != view.Safe(seen.Name) {
			return usage("%q is not the name: nothing was done", line)
		}
		return nil
	}
}

func printUnlocked(con *console, u view.Unlocked, now time.Time) error {
	code := 0
	switch {
	case u.Removed:
	case len(u.Holders) == 0:
		u.Why, code = view.WhyFree, exitNotHeld
	default:
		u.Why, code = view.WhyOther, exitBusy
	}
	var err error
	switch {
	case con.json:
		err = con.printJSON(u)
	case u.Removed && !con.quiet:
		err = con.print(u.Text(now))
	case u.Why == view.WhyFree:
		con.logf("%s is not held: nothing was done", view.Safe(u.Name))
	case u.Why == view.WhyOther:
		fmt.Fprintf(con.err, "dibs: %s\n", u.Text(now))
	}
	return errors.Join(err, exitWith(code, nil))
}
