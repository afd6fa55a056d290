package redisconn

import (
	"fmt"
	"net"
	"strconv"
)

// A SlotRange is a slot range with a single master.
type SlotRange struct {
	First, Last int
	Master      string // host:port
}

// FindSlot returns the range that contains a slot.
func FindSlot(ranges []SlotRange, slot int) (r SlotRange, ok bool) {
	for _, r := range ranges {
		if r.First <= slot && slot <= r.Last {
			return r, true
		}
	}
	return SlotRange{}, false
}

// ParseSlots reads the reply to CLUSTER SLOTS. Each element contains the first slot, the last slot,
// the master and its replicas. from is the replying node's address.
func ParseSlots(reply any, from string) ([]SlotRange, error) {
	list, ok := reply.([]any)
	if !ok || len(list) == 0 {
		return nil, fmt.Errorf("%s: no slots assigned: CLUSTER SLOTS returned %v", from, reply)
	}
	var ranges []SlotRange
	for _, item := range list {
		r, ok := parseSlotRange(item, from)
		if !ok {
			return nil, fmt.Errorf("%s: unexpected CLUSTER SLOTS reply %v", from, item)
		}
		ranges = append(ranges, r)
	}
	return ranges, nil
}

func parseSlotRange(item any, from string) (r SlotRange, ok bool) {
	fields, _ := item.([]any)
	if len(fields) < 3 {
		return r, false
	}
	first, ok1 := fields[0].(int64)
	last, ok2 := fields[1].(int64)
	node, _ := fields[2].([]any)
	if len(node) < 2 {
		return r, false
	}
	host, _ := node[0].(string)
	port, _ := node[1].(int64)
	return SlotRange{int(first), int(last), nodeAddress(host, strconv.FormatInt(port, 10), from)}, ok1 && ok2
}

// nodeAddress returns a node's address as the node at from reports it. That node omits the host or
// reports "?" if its own host is unknown.
func nodeAddress(host, port, from string) string {
	if host == "" || host == "?" {
		host, _, _ = net.SplitHostPort(from)
	}
	return net.JoinHostPort(host, port)
}
