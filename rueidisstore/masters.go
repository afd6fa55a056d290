package rueidisstore

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/dibslock/dibs/redisstore/redisconn"
	"github.com/redis/rueidis"
)

// Masters implements redisconn.Conn.
func (c *conn) Masters(ctx context.Context, visit func(redisconn.Node) error) error {
	if !c.sharded {
		return visit(c.node(c.client, ""))
	}
	nodes := c.client.Nodes()
	masters, err := c.masters(ctx, nodes)
	if err != nil {
		return err
	}
	for _, addr := range slices.Sorted(maps.Keys(masters)) {
		client, err := c.master(ctx, nodes, masters[addr])
		if err != nil {
			return err
		}
		if err := visit(c.node(client, addr)); err != nil {
			return err
		}
	}
	return nil
}

// masters returns the addresses of the nodes that own slots, each with a slot range.
func (c *conn) masters(ctx context.Context, nodes map[string]rueidis.Client) (map[string]redisconn.SlotRange, error) {
	ranges, err := c.ranges(ctx, nodes)
	found := make(map[string]redisconn.SlotRange)
	for _, r := range ranges {
		found[r.Master] = r
	}
	return found, err
}

// master returns rueidis' client for the owner of some slots. If the owner is not among the nodes,
// rueidis does not know it yet. It reloads its slot map after an error from its own command, but
// not from a node client's. So master sends a command that a former owner redirects. This adds the
// new owner at once, or within a second if the former owner is dead. A user without rights to the
// key gets an error until another command is redirected.
func (c *conn) master(ctx context.Context, nodes map[string]rueidis.Client, r redisconn.SlotRange) (rueidis.Client, error) {
	addr := r.Master
	if client, ok := nodes[addr]; ok {
		return client, nil
	}
	redirected := probe(c.client.B(), redisconn.KeyOfSlot(r.First))
	err := c.client.Do(c.bounded(ctx, deadlineOf(ctx)), redirected).Error()
	if client, ok := c.client.Nodes()[addr]; ok {
		return client, nil
	}
	if err != nil {
		return nil, fmt.Errorf("rueidis has no client for the master %s yet: %w", addr, err)
	}
	return nil, fmt.Errorf("rueidis has no client for the master %s yet", addr)
}

// ranges returns the slot map from the first node that answers. It does not query roles: a user
// with the permissions for locking need not have this permission, and a replica may be down.
func (c *conn) ranges(ctx context.Context, nodes map[string]rueidis.Client) ([]redisconn.SlotRange, error) {
	err := fmt.Errorf("rueidis has no node of the cluster")
	for addr, client := range nodes {
		var replies [1]redisconn.Reply
		c.do(ctx, deadlineOf(ctx), client, []redisconn.Cmd{redisconn.Command("CLUSTER", "SLOTS")}, replies[:])
		var ranges []redisconn.SlotRange
		if err = replies[0].Err; err == nil {
			ranges, err = redisconn.ParseSlots(replies[0].Value, addr)
		}
		if err == nil || ctx.Err() != nil {
			return ranges, err
		}
	}
	return nil, err
}

// Refresh implements redisconn.Refresher. rueidis itself reloads the slot map only once a second.
// The map that Refresh loads is used until then.
func (c *conn) Refresh() {
	const within, maxAge = 200 * time.Millisecond, 2 * time.Second
	if !c.sharded {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	if ranges, err := c.ranges(ctx, c.client.Nodes()); err == nil {
		c.newer.Store(&slotMap{ranges, time.Now().Add(maxAge)})
	}
}

// slotMap contains all slots' owners. It is used until a time.
type slotMap struct {
	ranges []redisconn.SlotRange
	until  time.Time
}

// of returns the client for the node that owns a command's slot, or all if m has expired or does
// not contain the node.
func (m *slotMap) of(all rueidis.Client, cmd rueidis.Completed) rueidis.Client {
	if m == nil || time.Now().After(m.until) {
		return all
	}
	if r, ok := redisconn.FindSlot(m.ranges, int(cmd.Slot())); ok {
		if node, ok := all.Nodes()[r.Master]; ok {
			return node
		}
	}
	return all
}

// deadlineOf returns a context's deadline, or zero.
func deadlineOf(ctx context.Context) time.Time {
	at, _ := ctx.Deadline()
	return at
}

func (c *conn) node(client rueidis.Client, addr string) redisconn.Node {
	return redisconn.Node{
		Addr: addr,
		Do: func(ctx context.Context, cmds []redisconn.Cmd, replies []redisconn.Reply) {
			c.do(ctx, deadlineOf(ctx), client, cmds, replies)
		},
	}
}
