package rueidis

import (
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"time"

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
	slots, err := c.slots(ctx, nodes)
	found := make(map[string]bool)
	for _, r := range slots {
		found[r.owner] = true
	}
	return slices.Sorted(maps.Keys(found)), err
}

// slots asks the nodes, until one answers, who has which slots. It does not ask for
// roles, which a user who may lock need not be allowed to see, nor need replicas that
// are down.
func (c *conn) slots(ctx context.Context, nodes map[string]rueidis.Client) ([]span, error) {
	err := fmt.Errorf("the client knows no node")
	for addr, client := range nodes {
		var replies [1]redisstore.Reply
		c.do(ctx, client, []redisstore.Cmd{{"CLUSTER", "SLOTS"}}, replies[:])
		if err = replies[0].Err; err == nil {
			ranges, _ := replies[0].Value.([]any)
			return spans(ranges, addr), nil
		}
		if ctx.Err() != nil {
			break
		}
	}
	return nil, err
}

// A span is slots that one master has.
type span struct {
	first, last int64
	owner       string // host:port
}

// spans reads the reply to CLUSTER SLOTS of a node at an address: first slot, last slot,
// master, replicas. A node that does not know its own host leaves it out.
func spans(ranges []any, at string) (all []span) {
	own, _, _ := net.SplitHostPort(at)
	for _, r := range ranges {
		fields, _ := r.([]any)
		if len(fields) < 3 {
			continue
		}
		first, ok1 := fields[0].(int64)
		last, ok2 := fields[1].(int64)
		master, _ := fields[2].([]any)
		if !ok1 || !ok2 || len(master) < 2 {
			continue
		}
		host, _ := master[0].(string)
		port, _ := master[1].(int64)
		if host == "" {
			host = own
		}
		all = append(all, span{first, last, net.JoinHostPort(host, strconv.FormatInt(port, 10))})
	}
	return all
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
	if slots, err := c.slots(ctx, c.client.Nodes()); err == nil {
		c.newer.Store(&owners{slots, time.Now().Add(counts)})
	}
}

// owners is who had which slots, until a time.
type owners struct {
	slots []span
	until time.Time
}

// of returns the client of the node that has a command's slot, if that is known better
// than by the client of all.
func (o *owners) of(all rueidis.Client, cmd rueidis.Completed) rueidis.Client {
	if o == nil || time.Now().After(o.until) {
		return all
	}
	slot := int64(cmd.Slot())
	for _, r := range o.slots {
		if r.first <= slot && slot <= r.last {
			if node, ok := all.Nodes()[r.owner]; ok {
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
