package rueidisstore

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/dibslock/dibs/internal/slots"
	"github.com/redis/rueidis"
)

// owners is a slot map, loaded when it is first needed. rueidis has one, but does not
// show it.
type owners struct {
	loaded  atomic.Pointer[[]slots.Range]
	loading chan struct{} // holds a value while a call loads the map
}

func newOwners() *owners { return &owners{loading: make(chan struct{}, 1)} }

// owner is the node that owns a slot.
type owner struct {
	addr    string
	client  rueidis.Client
	discard func() // discards the slot map that names the node
}

// of returns the owner of a slot.
func (o *owners) of(ctx context.Context, c *conn, slot int) (owner, error) {
	ranges, err := o.get(ctx, c)
	if err != nil {
		return owner{}, err
	}
	found := owner{discard: func() { o.loaded.CompareAndSwap(ranges, nil) }}
	r, ok := slots.Find(*ranges, slot)
	if !ok {
		found.discard()
		return owner{}, fmt.Errorf("no node of the cluster owns slot %d", slot)
	}
	found.addr = r.Master()
	if found.client, err = c.master(ctx, c.client.Nodes(), r); err != nil {
		found.discard()
		return owner{}, err
	}
	return found, nil
}

// get returns the slot map. Of concurrent calls one loads it, and the others wait.
func (o *owners) get(ctx context.Context, c *conn) (*[]slots.Range, error) {
	select {
	case o.loading <- struct{}{}:
		defer func() { <-o.loading }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if known := o.loaded.Load(); known != nil {
		return known, nil
	}
	ranges, err := c.ranges(ctx, c.client.Nodes())
	if err != nil {
		return nil, err
	}
	o.loaded.Store(&ranges)
	return &ranges, nil
}
