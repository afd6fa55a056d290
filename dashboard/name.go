package dashboard

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/dibslock/dibs/dashboard/view"
	"github.com/dibslock/dibs/driver"
)

// A nameView contains the details for a name.
type nameView struct {
	State         view.State
	At            time.Time
	Holders       []holderRow
	Nodes         []nodeRow
	Events        []eventRow
	Since         string // since when events are seen
	RevokeForeign string // link to the form
}

type holderRow struct {
	view.Holder
	Revoke string // link to the form
}

type nodeRow struct {
	view.Row
	Node int // the first node is 0, as in a quorum's errors
	Err  string
}

type eventRow struct{ At, AtFull, Event, Who, More string }

// nameState returns a name's state in a frame. If the frame does not contain it, it asks the store:
// the name's key may hold a value other than a lock.
func (h *handler) nameState(ctx context.Context, f *frame, name string) (driver.State, error) {
	if f.snapshot.Rest != nil {
		h.hub.Display(f.snapshot, []string{name})
	}
	if state, found := f.snapshot.State(name); found {
		return state, nil
	}
	return h.inspect(ctx, name)
}

// inspect returns a name's current state, even if its key holds a value other than a lock.
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
	n := nameView{State: view.StateOf(state, at), At: at, Nodes: nodeRowsOf(state.Nodes, at)}
	for i, one := range n.State.Holders {
		row := holderRow{Holder: one}
		if q.allow && h.store.Has("Revoker") && state.Foreign == nil && revocable(state.Holders[i]) {
			row.Revoke = revokeLink(q.name, h.leaseMark(state.Holders[i]))
		}
		n.Holders = append(n.Holders, row)
	}
	if q.allow && h.store.Has("ForeignRevoker") && state.Foreign != nil && state.Foreign.Removable() {
		n.RevokeForeign = revokeLink(q.name, foreignMark+h.secrets.foreign(state))
	}
	for _, c := range h.hub.Recent(q.name) {
		n.Events = append(n.Events, eventRowOf(c, f.snapshot.At))
	}
	if !f.snapshot.Began.IsZero() {
		n.Since = clock(f.snapshot.Began, f.snapshot.At)
	}
	return n
}

// ofAll says how many there are, if a list does not contain all.
func ofAll(listed, all int) string {
	if listed >= all {
		return ""
	}
	return "the first " + strconv.Itoa(listed) + " of " + strconv.Itoa(all)
}

// processOf returns the link to the process with this address, or "" if it is not known.
func processOf(host string, pid int) string {
	if host == "" {
		return ""
	}
	return processLink(addressOf(host, pid))
}

// fenceText returns a holder's fence, or "" for a foreign lock.
func fenceText(fence uint64, foreign bool) string {
	switch {
	case foreign:
		return ""
	case fence == 0:
		return "not known yet"
	}
	return strconv.FormatUint(fence, 10)
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

func nodeRowsOf(nodes []driver.NodeState, at time.Time) (rows []nodeRow) {
	for i, n := range nodes {
		if n.Err != nil {
			rows = append(rows, nodeRow{Node: i, Err: view.Safe(view.ErrorText(n.Err))})
			continue
		}
		rows = append(rows, nodeRow{Node: i, Row: view.StateOf(n.State, at).Row(at)})
	}
	return rows
}

func eventRowOf(c view.Change, now time.Time) eventRow {
	who, more := c.Columns()
	return eventRow{clock(c.Time, now), c.Time.UTC().Format(time.RFC3339Nano), strings.ReplaceAll(c.Event, "_", " "), who, more}
}
