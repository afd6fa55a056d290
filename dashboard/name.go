package dashboard

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/view"
)

// A nameView is what is known of one name.
type nameView struct {
	State   string // held, free, wrong_type
	What    string // the same in words
	Holders []holderRow
	Holding string // of how many holders these are, if not of all
	Waiters []waiterRow
	Waiting string
	Foreign *foreignView
	Nodes   []nodeRow
	Events  []eventRow
	Since   string // since when events are seen
	Revoke  bool   // holders have links to the form
}

type holderRow struct {
	Holder, Process string // the text, and the link to its process
	Kind, Weight    string
	Held, TTL       string
	Bar             int
	Fence           string
	Revoke          string // link to the form
}

type waiterRow struct {
	Position        int
	Waiter, Process string
	Kind, Weight    string
	Waited          string
}

type foreignView struct {
	Key, Type, Kind, TTL string
	Advice               []string
	Revoke               string // link to the form
}

type nodeRow struct {
	Node    int // the first one is 0, as in errors of a quorum
	Holders string
	TTL     string
	Waiting int
	Fence   string
	Err     string
}

type eventRow struct{ At, AtFull, Event, Who, More string }

// nameState returns the state of a name in a frame. It asks the store about a name that is
// not in it: its key may hold a value that is not a lock.
func (h *handler) nameState(ctx context.Context, f *frame, name string) (driver.State, error) {
	if f.snapshot.Rest != nil {
		h.hub.Display(f.snapshot, []string{name})
	}
	if state, found := f.snapshot.State(name); found {
		return state, nil
	}
	return h.inspect(ctx, name)
}

// inspect returns the current state of a name, also of one whose key holds a value that is
// not a lock.
func (h *handler) inspect(ctx context.Context, name string) (driver.State, error) {
	state, err := h.poller.Inspect(context.WithoutCancel(ctx), name) // others may use the result; it is bounded by its timeout
	if errors.Is(err, driver.ErrWrongType) {
		err = nil
		if state.Foreign == nil {
			state.Foreign = &driver.Foreign{Key: name, Type: "value", Kind: "unknown value", Advice: "the key holds a value that is not a lock of dibs"}
		}
	}
	state.Name = name
	return state, err
}

func (h *handler) nameViewOf(f *frame, q query, state driver.State, at time.Time) nameView {
	s := view.StateOf(state, at)
	_, canEndForeign := h.store.(driver.ForeignRevoker)
	n := nameView{State: strings.ReplaceAll(s.State, "_", " "), What: s.Description()}
	for i, one := range s.Holders {
		row := holderRowOf(state.Holders[i], one, at, state.Foreign != nil)
		if q.allow && state.Foreign == nil && revocable(state.Holders[i]) {
			row.Revoke = revokeLink(q.name, h.leaseMark(state.Holders[i]))
			n.Revoke = true
		}
		n.Holders = append(n.Holders, row)
	}
	for i, one := range s.Waiters {
		w := state.Waiters[i]
		n.Waiters = append(n.Waiters, waiterRow{
			Position: one.Position, Waiter: one.String(), Process: processOf(one.Host, one.PID),
			Kind: string(w.Kind), Weight: weightText(w.Weight, w.Limit, w.Weight == w.Limit), Waited: view.Brief(w.Waited),
		})
	}
	n.Holding, n.Waiting = ofAll(len(s.Holders), s.Holding), ofAll(len(s.Waiters), s.Waiting)
	if s.Foreign != nil {
		n.What = s.Foreign.Description()
		n.Foreign = foreignViewOf(s.Foreign)
		if q.allow && canEndForeign && s.Foreign.Removable {
			n.Foreign.Revoke = revokeLink(q.name, foreignMark+h.secrets.foreign(state))
		}
	}
	n.Nodes = nodeRowsOf(state.Nodes, at)
	for _, c := range h.hub.Recent(q.name) {
		n.Events = append(n.Events, eventRowOf(c, f.snapshot.At))
	}
	if !f.snapshot.Began.IsZero() {
		n.Since = clock(f.snapshot.Began, f.snapshot.At)
	}
	return n
}

// ofAll says how many there are, if a list has not all of them.
func ofAll(listed, all int) string {
	if listed >= all {
		return ""
	}
	return "the first " + strconv.Itoa(listed) + " of " + strconv.Itoa(all)
}

func holderRowOf(h driver.Holder, shown view.Holder, at time.Time, foreign bool) holderRow {
	r := holderRow{
		Holder: shown.String(), Process: processOf(shown.Host, shown.PID),
		Kind: string(h.Kind), Weight: weightText(h.Weight, h.Limit, h.Weight == 0),
		TTL: view.Brief(shown.Left()), Bar: barOf(shown.Left()), Fence: fenceText(h, foreign),
	}
	if !shown.Since.IsZero() {
		r.Held = view.Brief(max(at.Sub(shown.Since), 0))
	}
	return r
}

// processOf returns the link to the process with this address, or "" if it is not known.
func processOf(host string, pid int) string {
	if host == "" {
		return ""
	}
	return processLink(addressOf(host, pid))
}

// fenceText returns the fence of a holder, or "" for a foreign lock.
func fenceText(h driver.Holder, foreign bool) string {
	if foreign {
		return ""
	}
	if h.Fence == 0 {
		return "not known yet"
	}
	return strconv.FormatUint(h.Fence, 10)
}

// weightText says how much a lease or a request takes. Readers have no useful limit.
func weightText(weight, limit int, exclusive bool) string {
	switch {
	case exclusive:
		return "all"
	case limit == 0 || limit == driver.Unlimited:
		return strconv.Itoa(weight)
	}
	return strconv.Itoa(weight) + " of " + strconv.Itoa(limit)
}

func foreignViewOf(f *view.Foreign) *foreignView {
	v := &foreignView{Key: view.Safe(f.Key), Type: view.Safe(f.Type), Kind: view.Safe(f.Kind), TTL: view.Brief(f.Left())}
	for part := range strings.SplitSeq(f.Advice, "; ") {
		v.Advice = append(v.Advice, view.Safe(part))
	}
	return v
}

func nodeRowsOf(nodes []driver.NodeState, at time.Time) (rows []nodeRow) {
	for i, n := range nodes {
		row := nodeRow{Node: i}
		if n.Err != nil {
			row.Err = view.Safe(view.ErrorText(n.Err))
			rows = append(rows, row)
			continue
		}
		one := view.StateOf(n.State, at).Row(at)
		row.Holders, row.TTL, row.Waiting, row.Fence = one.Holder, one.TTL, one.Wait, one.Fence
		rows = append(rows, row)
	}
	return rows
}

func eventRowOf(c view.Change, now time.Time) eventRow {
	who, more := c.Columns()
	return eventRow{clock(c.Time, now), c.Time.UTC().Format(time.RFC3339Nano), strings.ReplaceAll(c.Event, "_", " "), who, more}
}
