package redistest

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// A member is a node's state as seen by another node: a line of CLUSTER NODES.
type member struct {
	id, addr string
	flags    []string // without "myself"
	master   string   // the ID of a replica's master, or "-"
	epoch    int64
	link     string   // "connected" or "disconnected"
	slots    []string // "0-5460" or "7", without moving slots
	myself   bool
}

func (m member) isMaster() bool { return slices.Contains(m.flags, "master") }

// isFailing reports whether other nodes consider the node dead or possibly dead.
func (m member) isFailing() bool {
	return slices.ContainsFunc(m.flags, func(f string) bool { return strings.HasPrefix(f, "fail") })
}

func (m member) serves(slot int) bool {
	return slices.ContainsFunc(m.slots, func(interval string) bool {
		low, high, ok := strings.Cut(interval, "-")
		if !ok {
			high = low
		}
		first, err := strconv.Atoi(low)
		last, err2 := strconv.Atoi(high)
		return err == nil && err2 == nil && first <= slot && slot <= last
	})
}

// A view is the state of all nodes as seen by a node.
type view []member

// view queries a node for its view.
func (s *Server) view(ctx context.Context) (view, error) {
	text, err := s.queryText(ctx, "CLUSTER", "NODES")
	if err != nil {
		return nil, err
	}
	var v view
	for line := range strings.Lines(text) {
		m, err := parseMember(strings.Fields(line))
		if err != nil {
			return nil, err
		}
		v = append(v, m)
	}
	return v, nil
}

// parseMember reads "id host:port@bus,name flags master ping pong epoch link slot…". A
// slot in brackets is moving; it is served like the others.
func parseMember(fields []string) (member, error) {
	if len(fields) < 8 {
		return member{}, fmt.Errorf("redistest: unexpected CLUSTER NODES line %q", fields)
	}
	epoch, err := strconv.ParseInt(fields[6], 10, 64)
	if err != nil {
		return member{}, fmt.Errorf("redistest: unexpected CLUSTER NODES line %q", fields)
	}
	m := member{id: fields[0], master: fields[3], epoch: epoch, link: fields[7]}
	m.addr, _, _ = strings.Cut(fields[1], "@")
	for flag := range strings.SplitSeq(fields[2], ",") {
		if flag == "myself" {
			m.myself = true
		} else {
			m.flags = append(m.flags, flag)
		}
	}
	for _, interval := range fields[8:] {
		if !strings.HasPrefix(interval, "[") {
			m.slots = append(m.slots, interval)
		}
	}
	return m, nil
}

// myself returns the queried node's own entry.
func (v view) myself() member {
	for _, m := range v {
		if m.myself {
			return m
		}
	}
	return member{}
}

func (v view) at(addr string) (member, error) {
	for _, m := range v {
		if m.addr == addr {
			return m, nil
		}
	}
	return member{}, fmt.Errorf("%s does not know %s", v.myself().addr, addr)
}

// summary is the part of a view that all nodes eventually agree on.
func (v view) summary() string {
	var lines []string
	for _, m := range v {
		lines = append(lines, fmt.Sprint(m.addr, m.id, m.flags, m.master, m.slots))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}
