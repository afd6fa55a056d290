package slots

import (
	"fmt"
	"net"
	"strconv"
)

// A Range is a range of slots owned by one master.
type Range struct {
	First, Last int
	Nodes       []string // host:port of the master and its replicas
}

// Master returns the address of the owner.
func (r Range) Master() string { return r.Nodes[0] }

// Find returns the range that has a slot.
func Find(ranges []Range, slot int) (r Range, ok bool) {
	for _, r := range ranges {
		if r.First <= slot && slot <= r.Last {
			return r, true
		}
	}
	return Range{}, false
}

// Parse reads the reply to CLUSTER SLOTS. Each element has the first slot, the last slot,
// the master and its replicas. from is the address of the node that replied.
func Parse(reply any, from string) ([]Range, error) {
	list, ok := reply.([]any)
	if !ok || len(list) == 0 {
		return nil, fmt.Errorf("%s: no slots assigned: CLUSTER SLOTS returned %v", from, reply)
	}
	var ranges []Range
	for _, item := range list {
		r, ok := parse(item, from)
		if !ok {
			return nil, fmt.Errorf("%s: unexpected CLUSTER SLOTS reply %v", from, item)
		}
		ranges = append(ranges, r)
	}
	return ranges, nil
}

func parse(item any, from string) (r Range, ok bool) {
	fields, _ := item.([]any)
	if len(fields) < 3 {
		return r, false
	}
	first, ok1 := fields[0].(int64)
	last, ok2 := fields[1].(int64)
	for _, field := range fields[2:] {
		node, _ := field.([]any)
		if len(node) < 2 {
			return r, false
		}
		host, _ := node[0].(string)
		port, _ := node[1].(int64)
		r.Nodes = append(r.Nodes, Address(host, strconv.FormatInt(port, 10), from))
	}
	r.First, r.Last = int(first), int(last)
	return r, ok1 && ok2
}

// Address returns the address of a node as reported by the node at from. That node omits
// the host or reports "?" if its own host is unknown.
func Address(host, port, from string) string {
	if host == "" || host == "?" {
		host, _, _ = net.SplitHostPort(from)
	}
	return net.JoinHostPort(host, port)
}
