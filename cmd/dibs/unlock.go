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
	"github.com/dibslock/dibs/driver"
	"github.com/spf13/cobra"
)

// exitNotHeld is the exit code of unlock if the name is not held.
const exitNotHeld = 1

// An unlockRequest holds the flags of unlock: which lease on a name to revoke.
type unlockRequest struct {
	name   string
	fence  uint64
	token  string
	force  bool
	reason string
	yes    bool
}

func (a *app) unlockCmd() *cobra.Command {
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

If the fence of the lease is known, the holder is notified at once; otherwise it
finds out at its next renewal. Its work may go on beside that of the next
holder: only the fence stops its writes.

A lock of another library has no fence: --force compares its whole value before
it deletes the key.

Exit codes: 0 revoked; 1 not held; 75 held by another lease, or the fence is not
known; 125 the store failed; 64 invalid command line.`,
		Example: `  dibs show nightly                      # the holder and its fence
  dibs unlock nightly --fence 1763788260123456
  dibs unlock nightly --force --reason "host web-7 is gone, INC-42"`,
		Args:              argCount(1, 1),
		ValidArgsFunction: a.completeName,
		RunE: func(c *cobra.Command, args []string) error {
			u.name = args[0]
			if err := u.check(c.Flags().Changed, terminal(a.in)); err != nil {
				return err
			}
			return a.withStore(func(ctx context.Context, s *opened) error { return a.unlock(ctx, s, u) })
		},
	}
	f := c.Flags()
	f.Uint64Var(&u.fence, "fence", 0, "revoke the lease with the fence `N`")
	f.StringVar(&u.token, "token", "", "release the lease with this `TOKEN`")
	f.BoolVar(&u.force, "force", false, "revoke the current leases")
	f.StringVar(&u.reason, "reason", "", "reason, which is printed with the result; required for --force")
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
	return nil
}

// An unlockResult is the output of unlock.
type unlockResult struct {
	Schema  int      `json:"schema"`
	Name    string   `json:"name"`
	Removed bool     `json:"removed"`
	Why     string   `json:"why,omitempty"` // if not removed: free, other
	Ended   []holder `json:"ended"`
	Holders []holder `json:"holders"` // the current holders, if known
	Waiting int      `json:"waiting"` // number of waiters before
	Reason  string   `json:"reason,omitempty"`
}

func (a *app) unlock(ctx context.Context, s *opened, u unlockRequest) error {
	seen, err := a.inspect(ctx, s, u.name)
	if err != nil {
		return err
	}
	if u.force && len(seen.Holders) > 0 && !u.yes {
		if err := a.confirm(ctx, seen); err != nil {
			return err
		}
	}
	ended, failed := a.endLease(ctx, s, u, seen)
	if failed != nil && len(ended) == 0 {
		return failed
	}
	result := unlockResult{Schema: schema, Name: u.name, Removed: len(ended) > 0, Ended: ended, Waiting: seen.Waiting, Reason: u.reason}
	now, err := a.inspect(ctx, s, u.name)
	if err != nil && !result.Removed {
		return err
	}
	result.Holders = stateOf(now, false).Holders
	return errors.Join(a.printUnlocked(result), failed)
}

// endLease revokes the lease that u selects and returns its holder.
func (a *app) endLease(ctx context.Context, s *opened, u unlockRequest, seen dibs.State) (ended []holder, err error) {
	locks := dibs.New(s.Store, dibs.Timeout(a.timeout))
	defer locks.Close()
	if u.force {
		return a.endAllSeen(ctx, s, locks, seen, u.reason)
	}
	var done bool
	if u.fence != 0 {
		done, err = locks.Revoke(ctx, u.name, u.fence, u.reason)
	} else {
		done, err = unlockToken(locks, u)
	}
	if !done {
		return []holder{}, err
	}
	return []holder{u.endedHolder(seen)}, nil
}

// endAllSeen revokes all leases in seen.
func (a *app) endAllSeen(ctx context.Context, s *opened, locks *dibs.Client, seen dibs.State, reason string) ([]holder, error) {
	ended := []holder{}
	for _, h := range seen.Holders {
		done, err := a.endSeen(ctx, s, locks, seen, h, reason)
		if err != nil {
			return ended, err
		}
		if done {
			ended = append(ended, holderOf(h, false))
		}
	}
	return ended, nil
}

// endSeen revokes one lease in seen, and no newer one.
//
// It uses the fence, which is unique. Before the first renewal the store does not know
// the fence of a lease. It may be the last one that was issued for the slot: Revoke
// checks that, and notifies the holder. Otherwise endSeen compares the token, which dibs
// never reuses.
func (a *app) endSeen(ctx context.Context, s *opened, locks *dibs.Client, seen dibs.State, h dibs.Holder, reason string) (bool, error) {
	fence := h.Fence
	if fence == 0 && h.Weight == 0 {
		fence = seen.Fence
	}
	if fence != 0 {
		done, err := locks.Revoke(ctx, seen.Name, fence, reason)
		if done || err != nil || h.Fence != 0 {
			return done, err
		}
	}
	ctx, cancel := a.withTimeout(ctx)
	defer cancel()
	return s.Release(ctx, driver.ReleaseRequest{Name: seen.Name, Token: h.Token, Unreserve: h.Reserved, Until: time.Now().Add(a.timeout)})
}

func unlockToken(locks *dibs.Client, u unlockRequest) (done bool, err error) {
	lease, err := locks.Attach(u.name, u.token)
	if err != nil {
		return false, err
	}
	if err := lease.Unlock(); !errors.Is(err, dibs.ErrLost) {
		return err == nil, err
	}
	return false, nil
}

// endedHolder returns the holder that was revoked: the one in seen with its fence or
// token.
func (u unlockRequest) endedHolder(seen dibs.State) holder {
	i := slices.IndexFunc(seen.Holders, func(h dibs.Holder) bool {
		return h.Token == u.token || h.Fence != 0 && h.Fence == u.fence
	})
	if i < 0 && len(seen.Holders) == 1 && seen.Holders[0].Fence == 0 {
		i = 0 // the store had not stored its fence yet
	}
	if i < 0 {
		return holder{Token: ownerOf(u.token).short, Fence: u.fence, Since: sinceOf(u.fence)}
	}
	h := seen.Holders[i]
	h.Fence = max(h.Fence, u.fence)
	return holderOf(h, false)
}

// confirm asks a person to type the name.
func (a *app) confirm(ctx context.Context, seen dibs.State) error {
	fmt.Fprintf(a.err, "%sthe work of the holder may go on; type the name to revoke the lease: ", stateOf(seen, false).text(widthOf(a.err)))
	typed := make(chan string, 1)
	go func() {
		line, err := bufio.NewReader(a.in).ReadString('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			line = ""
		}
		typed <- strings.TrimRight(line, "\r\n")
	}()
	select {
	case <-ctx.Done():
		fmt.Fprintln(a.err)
		return context.Cause(ctx)
	case line := <-typed:
		if line != seen.Name && line != safe(seen.Name) {
			return usage("%q is not the name: nothing was done", line)
		}
		return nil
	}
}

func (a *app) printUnlocked(u unlockResult) error {
	code := 0
	switch {
	case u.Removed:
	case len(u.Holders) == 0:
		u.Why, code = "free", exitNotHeld
	default:
		u.Why, code = "other", exitBusy
	}
	var err error
	switch {
	case a.json:
		err = a.printJSON(u)
	case u.Removed && !a.quiet:
		err = a.print(u.text())
	case u.Why == "free":
		a.logf("%s is not held: nothing was done", safe(u.Name))
	case u.Why == "other":
		fmt.Fprintf(a.err, "dibs: %s\n", u.text())
	}
	return errors.Join(err, exitWith(code, nil))
}

// text formats the result for people.
func (u unlockResult) text() string {
	var b strings.Builder
	if !u.Removed {
		h := u.Holders[0]
		fmt.Fprintf(&b, "%s is held by %s, %s: nothing was done", safe(u.Name), h, h.fenceText())
		return b.String()
	}
	for _, h := range u.Ended {
		fmt.Fprintf(&b, "%s: revoked the lease of %s, %s\n", safe(u.Name), h, h.fenceText())
	}
	if len(u.Holders) > 0 {
		fmt.Fprintf(&b, "%s: now held by %s\n", safe(u.Name), nameState{Holders: u.Holders, Holding: len(u.Holders)}.holderSummary())
	}
	if u.Reason != "" {
		fmt.Fprintf(&b, "reason: %s\n", safe(u.Reason))
	}
	return b.String()
}

// fenceText formats the fence of a lease and its time.
func (h holder) fenceText() string {
	if h.Fence == 0 {
		return "fence not known yet"
	}
	text := fmt.Sprintf("fence %d", h.Fence)
	if !h.Since.IsZero() {
		text += fmt.Sprintf(", since %s (%s)", h.Since.Local().Format(time.DateTime), h.ago())
	}
	return text
}
