package rueidis

import (
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"

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

// masters asks the nodes, until one answers, which of them have slots of their own. It
// does not ask for roles, which a user who may lock need not be allowed to see, nor
// need replicas that are down.
func (c *conn) masters(ctx context.Context, nodes map[string]rueidis.Client) ([]string, error) {
	err := fmt.Errorf("the client knows no node")
	for addr, client := range nodes {
		var replies [1]redisstore.Reply
		c.do(ctx, client, []redisstore.Cmd{{"CLUSTER", "SLOTS"}}, replies[:])
		if err = replies[0].Err; err == nil {
			ranges, _ := replies[0].Value.([]any)
			return owners(ranges, addr), nil
		}
	}
	return nil, err
}

// owners reads the reply to CLUSTER SLOTS of a node at an address: first slot, last slot,
// master, replicas. A node that does not know its own host leaves it out.
func owners(ranges []any, at string) []string {
	own, _, _ := net.SplitHostPort(at)
	found := make(map[string]bool)
	for _, r := range ranges {
		fields, _ := r.([]any)
		if len(fields) < 3 {
			continue
		}
		master, _ := fields[2].([]any)
		if len(master) < 2 {
			continue
		}
		host, _ := master[0].(string)
		port, _ := master[1].(int64)
		if host == "" {
			host = own
		}
		found[net.JoinHostPort(host, strconv.FormatInt(port, 10))] = true
	}
	return slices.Sorted(maps.Keys(found))
}

func (c *conn) node(client rueidis.Client, addr string) redisstore.Node {
	return redisstore.Node{
		Addr: addr,
		Do: func(ctx context.Context, cmds []redisstore.Cmd, replies []redisstore.Reply) {
			c.do(ctx, client, cmds, replies)
		},
	}
}
