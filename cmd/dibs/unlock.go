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

// exitNotHeld is the code of unlock if there was nothing to end.
const exitNotHeld = 1

// An unlocking says which holding of a name is to end.
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
		Short: "End somebody's lease on a name",
		Long: `End somebody's lease on a name, and hand the name on to the first waiter.

    --fence N      the lease that has this fence ("dibs show" prints it), and no
                   newer one
    --token TOKEN  the lease that has this token, as its owner would
    --force        whatever is held now: asks first, and ends what it has shown,
                   and no newer lease

The holder learns it at once if its fence is known, or else by its next renewal.
Its work may go on all the same, beside that of the next holder: only the fence
stops what it writes.

Another library's lock has no fence; --force compares its whole value before it
is removed.

Exit codes: 0 it was ended; 1 the name is not held; 75 somebody else holds it,
or that fence is not known; 125 the store; 64 the command line.`,
		Example: `  dibs show nightly                      # who is it, and what is its fence?
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
	f.Uint64Var(&u.fence, "fence", 0, "end the lease that has this fence, `N`")
	f.StringVar(&u.token, "token", "", "end the lease that has this `TOKEN`")
	f.BoolVar(&u.force, "force", false, "end whatever is held now")
	f.StringVar(&u.reason, "reason", "", "why, for the record; --force needs it")
	f.BoolVar(&u.yes, "yes", false, "do not ask")
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
		return usage("unlock %q: one of --fence, --token and --force", u.name)
	case given("fence") && u.fence == 0:
		return usage("unlock %q: no holding has fence 0", u.name)
	case given("token") && u.token == "":
		return usage("unlock %q: empty --token", u.name)
	case u.force && strings.TrimSpace(u.reason) == "":
		return usage("unlock %q: --force needs a --reason", u.name)
	case u.force && !u.yes && !terminal:
		return usage("unlock %q: --force asks, and there is no terminal: --yes", u.name)
	}
	return nil
}

// An unlocked is what unlock prints.
type unlockResult struct {
	Schema  int      `json:"schema"`
	Name    string   `json:"name"`
	Removed bool     `json:"removed"`
	Why     string   `json:"why,omitempty"` // if it was not: free, other
	Ended   []holder `json:"ended"`
	Holders []holder `json:"holders"` // who holds now, as far as known
	Waiting int      `json:"waiting"` // how many waited: the first of them holds next
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

// end ends the holding that is meant, and returns it.
func (a *app) endLease(ctx context.Context, s *opened, u unlockRequest, seen dibs.State) (ended []holder, err error) {
	locks := dibs.New(s.Store, dibs.Timeout(a.timeout))
	defer locks.Close()
	if u.force {
		return a.endAllSeen(ctx, s, locks, seen)
	}
	var done bool
	if u.fence != 0 {
		done, err = locks.Revoke(ctx, u.name, u.fence)
	} else {
		done, err = unlockToken(locks, u)
	}
	if !done {
		return []holder{}, err
	}
	return []holder{u.endedHolder(seen)}, nil
}

// endAll ends the holdings that were seen.
func (a *app) endAllSeen(ctx context.Context, s *opened, locks *dibs.Client, seen dibs.State) ([]holder, error) {
	ended := []holder{}
	for _, h := range seen.Holders {
		done, err := a.endSeen(ctx, s, locks, seen, h)
		if err != nil {
			return ended, err
		}
		if done {
			ended = append(ended, holderOf(h, false))
		}
	}
	return ended, nil
}

// endSeen ends one holding that was seen, and no newer one. A fence is in no other
// holding. Where none was noted yet, it may be the last that was given out: Break knows,
// and tells the holder. Else the token is compared; dibs never makes the same one twice.
func (a *app) endSeen(ctx context.Context, s *opened, locks *dibs.Client, seen dibs.State, h dibs.Holder) (bool, error) {
	fence := h.Fence
	if fence == 0 && h.Weight == 0 {
		fence = seen.Fence
	}
	if fence != 0 {
		done, err := locks.Revoke(ctx, seen.Name, fence)
		if done || err != nil || h.Fence != 0 {
			return done, err
		}
	}
	ctx, cancel := a.withTimeout(ctx)
	defer cancel()
	return s.Release(ctx, driver.ReleaseRequest{Name: seen.Name, Token: h.Token, Until: time.Now().Add(a.timeout)})
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

// meant finds who was ended, by fence or token, among those who were seen before.
func (u unlockRequest) endedHolder(seen dibs.State) holder {
	i := slices.IndexFunc(seen.Holders, func(h dibs.Holder) bool {
		return h.Token == u.token || h.Fence != 0 && h.Fence == u.fence
	})
	if i < 0 && len(seen.Holders) == 1 && seen.Holders[0].Fence == 0 {
		i = 0 // its fence was not noted yet
	}
	if i < 0 {
		return holder{Token: ownerOf(u.token).short, Fence: u.fence, Since: sinceOf(u.fence)}
	}
	h := seen.Holders[i]
	h.Fence = max(h.Fence, u.fence)
	return holderOf(h, false)
}

// confirm has a person type the name.
func (a *app) confirm(ctx context.Context, seen dibs.State) error {
	fmt.Fprintf(a.err, "%sthe work of who holds may go on; type the name to end the holding: ", stateOf(seen, false).text(widthOf(a.err)))
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

// text says what was done, for people.
func (u unlockResult) text() string {
	var b strings.Builder
	if !u.Removed {
		h := u.Holders[0]
		fmt.Fprintf(&b, "%s is held by %s, with %s: nothing was done", safe(u.Name), h, h.fenceText())
		return b.String()
	}
	for _, h := range u.Ended {
		fmt.Fprintf(&b, "%s: ended the holding of %s, with %s\n", safe(u.Name), h, h.fenceText())
	}
	if len(u.Holders) > 0 {
		fmt.Fprintf(&b, "%s: now held by %s\n", safe(u.Name), nameState{Holders: u.Holders, Holding: len(u.Holders)}.holderSummary())
	}
	if u.Reason != "" {
		fmt.Fprintf(&b, "reason: %s\n", safe(u.Reason))
	}
	return b.String()
}

// known is what tells a holding from others.
func (h holder) fenceText() string {
	if h.Fence == 0 {
		return "no fence known yet"
	}
	text := fmt.Sprintf("fence %d", h.Fence)
	if !h.Since.IsZero() {
		text += fmt.Sprintf(", since %s (%s)", h.Since.Local().Format(time.DateTime), h.ago())
	}
	return text
}
