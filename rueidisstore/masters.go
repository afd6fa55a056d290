package rueidisstore

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/dibslock/dibs/internal/slots"
	"github.com/dibslock/dibs/redisstore"
	"github.com/redis/rueidis"
)

// Masters implements redisstore.Conn.
func (c *conn) Masters(ctx context.Context, visit func(redisstore.Node) error) error {
	if !c.sharded {
		return visit(c.node(c.client, ""))
	}
	nodes := c.client.Nodes()
	masters, err := c.masters(ctx, nodes)
	if err != nil {
		return err
	}
	for _, addr := range masters {
		client, ok := nodes[addr]
		if !ok {
			return fmt.Errorf("the client does not know the master %s yet", addr)
		}
		if err := visit(c.node(client, addr)); err != nil {
			return err
		}
	}
	return nil
}

// masters returns the addresses of the nodes that have slots of their own.
func (c *conn) masters(ctx context.Context, nodes map[string]rueidis.Client) ([]string, error) {
	ranges, err := c.ranges(ctx, nodes)
	found := make(map[string]bool)
	for _, r := range ranges {
		found[r.Master()] = true
	}
	return slices.Sorted(maps.Keys(found)), err
}

// ranges asks the nodes, until one answers, who has which slots. It does not ask for
// roles, which a user who may lock need not be allowed to see, nor need replicas that
// are down.
func (c *conn) ranges(ctx context.Context, nodes map[string]rueidis.Client) ([]slots.Range, error) {
	err := fmt.Errorf("the client knows no node")
	for addr, client := range nodes {
		var replies [1]redisstore.Reply
		c.do(ctx, client, []redisstore.Cmd{{"CLUSTER", "SLOTS"}}, replies[:])
		var ranges []slots.Range
		if err = replies[0].Err; err == nil {
			ranges, err = slots.Parse(replies[0].Value, addr)
		}
		if err == nil || ctx.Err() != nil {
			return ranges, err
		}
	}
	return nil, err
}

// Refresh implements redisstore.Refresher: rueidis itself looks once a second who has
// which slots. What is found here counts until it has done so.
func (c *conn) Refresh() {
	const within, counts = 200 * time.Millisecond, 2 * time.Second
	if !c.sharded {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	if ranges, err := c.ranges(ctx, c.client.Nodes()); err == nil {
		c.newer.Store(&owners{ranges, time.Now().Add(counts)})
	}
}

// owners is who had which slots, until a time.
type owners struct {
	ranges []slots.Range
	until  time.Time
}

// of returns the client of the node that has a command's slot, if that is known better
// than by the client of all.
func (o *owners) of(all rueidis.Client, cmd rueidis.Completed) rueidis.Client {
	if o == nil || time.Now().After(o.until) {
		return all
	}
	slot := int(cmd.Slot())
	for _, r := range o.ranges {
		if r.First <= slot && slot <= r.Last {
			if node, ok := all.Nodes()[r.Master()]; ok {
				return node
			}
		}
	}
	return all
}

func (c *conn) node(client rueidis.Client, addr string) redisstore.Node {
	return redisstore.Node{
		Addr: addr,
		Do: func(ctx context.Context, cmds []redisstore.Cmd, replies []redisstore.Reply) {
			c.do(ctx, client, cmds, replies)
		},
	}
}
