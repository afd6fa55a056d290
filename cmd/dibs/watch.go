package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/dibslock/dibs"
	"github.com/spf13/cobra"
)

// The events of watch. It polls the store, so it may miss states that are shorter than
// the time between two polls.
const (
	eventHeld      = "held"       // held when watch began
	eventWaiting   = "waiting"    // a waiter has joined the queue
	eventGone      = "gone"       // a waiter gave up, died, or held and released between two polls
	eventAcquired  = "acquired"   // acquired by a holder that was not seen waiting
	eventHandedOff = "handed_off" // acquired by a waiter
	eventReserved  = "reserved"   // released, but unavailable until MinHold ends
	eventReleased  = "released"   // released, or revoked
	eventExpired   = "expired"    // gone at its expiry time
	eventChanged   = "changed"    // a count has changed, and the lists are incomplete
	eventAway      = "away"       // the store does not answer
	eventBack      = "back"
)

func (a *app) watchCmd() *cobra.Command {
	var every, during durationFlag
	c := &cobra.Command{
		Use:   "watch [GLOB]",
		Short: "Print a line for each change",
		Long: `Print a line for each change of a matching name: acquired, released, expired, a
new waiter, a waiter that has given up. It runs until a signal ends it. GLOB is
as in "dibs ls".

It polls the store, --every after the last answer, so it may miss changes that
are shorter. It reports an outage of the store and goes on polling.

Exit codes: 0 --for is over; 130 or 143 ended by a signal; 64 invalid command
line.`,
		Example: `  dibs watch
  dibs watch 'order:*' --every 2s
  dibs watch --json --for 1h | jq -r 'select(.event == "expired").name'`,
		Args:              argCount(0, 1),
		ValidArgsFunction: a.completeName,
		RunE: func(_ *cobra.Command, args []string) error {
			if err := every.check(); err != nil {
				return err
			}
			return a.withStore(func(ctx context.Context, s *opened) error {
				if during > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, time.Duration(during))
					defer cancel()
				}
				return a.watch(ctx, s, globOf(args), time.Duration(every))
			})
		},
	}
	addEvery(c, &every)
	c.Flags().Var(&during, "for", "exit after this time (default: run until a signal)")
	return c
}

func addEvery(c *cobra.Command, every *durationFlag) {
	*every = durationFlag(500 * time.Millisecond)
	c.Flags().Var(every, "every", "pause between two polls of the store")
}

// check rejects an --every that is too short.
func (s durationFlag) check() error {
	const least = 10 * time.Millisecond
	if every := time.Duration(s); every < least {
		return usage("--every %v: want at least %v", every, least)
	}
	return nil
}

func (a *app) watch(ctx context.Context, s *opened, glob string, every time.Duration) error {
	w := watcher{began: true}
	for ctx.Err() == nil {
		asked := time.Now()
		states, err := a.inspectMatching(ctx, s, glob, slices.Collect(maps.Keys(w.known))...)
		if ctx.Err() != nil {
			break
		}
		if errors.Is(err, dibs.ErrInvalid) {
			return err
		}
		if err := a.printChanges(s, w.update(states, err, asked, time.Now())); err != nil {
			return err
		}
		sleepOrDone(ctx, every)
	}
	return nil
}

// sleepOrDone waits for d, or until ctx ends.
func sleepOrDone(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// A watcher compares the states of each poll with those of the previous one.
type watcher struct {
	known map[string]nameState // with whole tokens
	asked time.Time            // when the last successful poll began
	began bool                 // there was no successful poll yet
	away  bool
}

// update records the result of a poll that began at asked, or its error, and returns the
// changes.
func (w *watcher) update(states []dibs.State, err error, asked, now time.Time) (news []change) {
	if err != nil {
		if !w.away {
			news = append(news, change{Event: eventAway, Error: strings.TrimPrefix(err.Error(), "dibs: ")})
		}
		w.away = true
		return stampedAt(news, now)
	}
	if w.away {
		news = append(news, change{Event: eventBack})
	}
	seen := make(map[string]nameState, len(states))
	for _, s := range states {
		seen[s.Name] = stateOf(s, true)
	}
	for _, name := range slices.Sorted(maps.Keys(union(w.known, seen))) {
		c := comparison{old: w.known[name], now: seen[name], at: now, passed: now.Sub(w.asked), first: w.began}
		if _, held := seen[name]; held {
			c.carrySince()
			seen[name] = c.now
		}
		for _, one := range c.changes() {
			one.Name, one.Holding, one.Waiting = name, c.now.Holding, c.now.Waiting
			news = append(news, one)
		}
	}
	w.known, w.asked, w.began, w.away = seen, asked, false, false
	return stampedAt(news, now)
}

func union(a, b map[string]nameState) map[string]nameState {
	all := maps.Clone(b)
	maps.Copy(all, a)
	return all
}

func stampedAt(news []change, at time.Time) []change {
	for i := range news {
		news[i].Schema, news[i].Time = schema, at.UTC().Truncate(time.Millisecond)
	}
	return news
}

// A comparison is of one name at two polls.
type comparison struct {
	old, now nameState
	at       time.Time     // time of the second poll
	passed   time.Duration // from the beginning of the first poll to the end of the second
	first    bool          // there was no earlier poll
}

// carrySince sets Since for holders whose fence is not known: to the time of the poll
// that first saw them.
func (c *comparison) carrySince() {
	for i, h := range c.now.Holders {
		before := sameHolder(c.old.Holders, h)
		switch {
		case !h.Since.IsZero():
		case before != nil:
			c.now.Holders[i].Since = before.Since
		case !c.first:
			c.now.Holders[i].Since = c.at.UTC().Truncate(time.Millisecond)
		}
	}
}

func (c *comparison) changes() (news []change) {
	if c.old.truncated() || c.now.truncated() {
		if c.old.Holding != c.now.Holding || c.old.Waiting != c.now.Waiting {
			news = append(news, change{Event: eventChanged})
		}
		return news
	}
	for _, w := range c.old.Waiters {
		if !c.now.has(w.Token) {
			news = append(news, c.waiterGone(w))
		}
	}
	left := slices.DeleteFunc(slices.Clone(c.old.Holders), func(h holder) bool { return sameHolder(c.now.Holders, h) != nil })
	for _, h := range left {
		news = append(news, c.holderLeft(h))
	}
	for _, h := range c.now.Holders {
		if sameHolder(c.old.Holders, h) == nil {
			news = append(news, c.holderCame(h, left))
		}
	}
	for _, w := range c.now.Waiters {
		if !c.old.has(w.Token) {
			news = append(news, change{Event: eventWaiting, Waiter: w.shortened(), Waited: w.Waited})
		}
	}
	return news
}

// truncated reports whether the lists of holders or waiters are incomplete.
func (n nameState) truncated() bool {
	return n.Holding > len(n.Holders) || n.Waiting > len(n.Waiters)
}

// has reports whether a token is a holder or a waiter.
func (n nameState) has(token string) bool {
	return slices.ContainsFunc(n.Holders, func(h holder) bool { return h.Token == token }) ||
		slices.ContainsFunc(n.Waiters, func(w waiter) bool { return w.Token == token })
}

// sameHolder returns the holder that was the same in another poll, or nil. A lease and what
// its release has reserved are different holders.
func sameHolder(holders []holder, wanted holder) *holder {
	i := slices.IndexFunc(holders, func(h holder) bool { return h.Token == wanted.Token && h.Reserved == wanted.Reserved })
	if i < 0 {
		return nil
	}
	return &holders[i]
}

func (c *comparison) waiterGone(w waiter) change {
	return change{Event: eventGone, Waiter: w.shortened(), Waited: w.Waited + c.passed.Milliseconds()}
}

func (c *comparison) holderLeft(h holder) change {
	s := change{Event: eventReleased, Holder: h.shortened()}
	if h.left() >= 0 && h.left() <= c.passed {
		s.Event = eventExpired
	}
	if !h.Since.IsZero() {
		s.Held = max(c.at.Sub(h.Since), 0).Milliseconds()
	}
	return s
}

func (c *comparison) holderCame(h holder, left []holder) change {
	s := change{Event: eventAcquired, Holder: h.shortened()}
	switch i := slices.IndexFunc(c.old.Waiters, func(w waiter) bool { return w.Token == h.Token }); {
	case h.Reserved:
		s.Event = eventReserved
	case c.first:
		s.Event = eventHeld
	case i >= 0:
		s.Event, s.Waited = eventHandedOff, c.old.Waiters[i].Waited+c.passed.Milliseconds()
		if len(left) == 1 && len(c.now.Holders) == 1 {
			s.From = left[0].shortened()
		}
	}
	return s
}

// shortened returns a copy of the holder with the public part of its token.
func (h holder) shortened() *holder {
	h.Token = ownerOf(h.Token).short
	return &h
}

func (w waiter) shortened() *waiter {
	w.Token = ownerOf(w.Token).short
	return &w
}

// printChanges prints the changes of one poll at once. Outages of the store go to stderr,
// except with --json.
func (a *app) printChanges(s *opened, news []change) error {
	var lines bytes.Buffer
	for _, one := range news {
		switch {
		case a.json:
			if err := printLine(&lines, one); err != nil {
				return err
			}
		case one.Event == eventAway:
			fmt.Fprintf(a.err, "dibs: the store does not answer, trying again: %s\nstore: %s\n", one.Error, s.location)
		case one.Event == eventBack:
			fmt.Fprintf(a.err, "dibs: the store answers again\n")
		default:
			one.write(&lines, a.width())
		}
	}
	if lines.Len() == 0 {
		return nil
	}
	return a.print(lines.String())
}

// write formats a change for people. It shortens a name that does not fit into width,
// unless width is zero.
func (s change) write(w io.Writer, width int) {
	who, more := s.columns()
	name := safe(s.Name)
	text := func() string {
		line := []string{s.Time.Local().Format("15:04:05.000"), fmt.Sprintf("%-10s", strings.ReplaceAll(s.Event, "_", " ")), name, who, more}
		return strings.TrimRight(strings.Join(line, "  "), " ")
	}
	if over := utf8.RuneCountInString(text()) - width; width > 0 && over > 0 {
		name = shorten(name, max(utf8.RuneCountInString(name)-over, shortest))
	}
	fmt.Fprintln(w, text())
}

func (s change) columns() (who, more string) {
	waited := "waited " + brief(time.Duration(s.Waited)*time.Millisecond)
	switch {
	case s.Waiter != nil && s.Event == eventWaiting:
		return s.Waiter.String(), fmt.Sprintf("position %d", s.Waiter.Position)
	case s.Waiter != nil:
		return s.Waiter.String(), waited
	case s.Holder == nil:
		return fmt.Sprintf("%s, %s", plural(s.Holding, "holder", "holders"), plural(s.Waiting, "waiter", "waiters")), ""
	case s.From != nil:
		return s.Holder.String(), waited + ", after " + s.From.String()
	case s.Event == eventHandedOff:
		return s.Holder.String(), waited
	case s.Held > 0:
		return s.Holder.String(), "held " + brief(time.Duration(s.Held)*time.Millisecond)
	case s.Event == eventReleased, s.Event == eventExpired:
		return s.Holder.String(), ""
	case s.Holder.left() < 0:
		return s.Holder.String(), "never expires"
	}
	return s.Holder.String(), "ttl " + brief(s.Holder.left())
}
