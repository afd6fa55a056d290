package redigostore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/listen"
	"github.com/dibslock/dibs/internal/slots"
	"github.com/dibslock/dibs/redisstore"
	"github.com/dibslock/dibs/redisstore/redisconn"
	"github.com/gomodule/redigo/redis"
)

// NewCluster returns a store on a Redis Cluster. nodes are the addresses (host:port) of
// some of its nodes. The store gets the other nodes from these, follows MOVED and ASK,
// and reloads the slot map when a node does not answer, at most five times a second.
// NewCluster itself performs no I/O.
//
// pool returns the pool for the node with an address. It is called once for each node,
// not concurrently, and must not block. Keep the pools that it returns, and close them
// after the dibs.Client.
//
// Without nodes, or if pool is nil, every call of the store returns dibs.ErrInvalid.
func NewCluster(nodes []string, pool func(addr string) *redis.Pool, options ...Option) *redisstore.Store {
	switch {
	case len(nodes) == 0:
		return redisstore.New(redisconn.Invalid("no node of the cluster is given"), options...)
	case pool == nil:
		return redisstore.New(redisconn.Invalid("the function that returns the pool of a node is nil"), options...)
	}
	return redisstore.New(newCluster(nodes, pool), append([]Option{redisstore.Sharded()}, options...)...)
}

func newCluster(nodes []string, pool func(addr string) *redis.Pool) *cluster {
	return &cluster{open: pool, nodes: slices.Clone(nodes), seeds: slices.Clone(nodes), pools: make(map[string]*source)}
}

var _ redisconn.Refresher = (*cluster)(nil)

const (
	reloadPause  = 200 * time.Millisecond // between reloads of the slot map while nodes fail
	maxRedirects = 3                      // of one command
	maxQueried   = 5                      // nodes, for one reload of the slot map
)

type cluster struct {
	open      func(addr string) *redis.Pool
	seeds     []string
	listening listen.Connections // the subscriptions of Listen

	mu       sync.Mutex
	pools    map[string]*source
	nodes    []string      // all known nodes; the slot map is loaded from them
	slotMap  []slots.Range // nil until first needed
	reloaded time.Time
}

// Do implements redisconn.Conn: one round trip to each node, all at once.
func (c *cluster) Do(ctx context.Context, _ time.Time, cmds []redisconn.Cmd, replies []redisconn.Reply) {
	byNode := make(map[string][]int)
	for i, cmd := range cmds {
		addr, err := c.nodeFor(ctx, cmd)
		if err != nil {
			replies[i] = redisconn.Reply{Err: err}
			continue
		}
		byNode[addr] = append(byNode[addr], i)
	}
	var group sync.WaitGroup
	for addr, which := range byNode {
		group.Go(func() { c.send(ctx, addr, which, cmds, replies) })
	}
	group.Wait()
}

// nodeFor returns the address of the node that a command is for: any master if the
// command has no key.
func (c *cluster) nodeFor(ctx context.Context, cmd redisconn.Cmd) (string, error) {
	if key := cmd.Key(); key != "" {
		return c.owner(ctx, slots.Of(key))
	}
	return c.anyNode(ctx)
}

// send sends some of the commands to one node, and follows its redirects.
func (c *cluster) send(ctx context.Context, addr string, which []int, cmds []redisconn.Cmd, replies []redisconn.Reply) {
	nodeCmds := make([]redisconn.Cmd, len(which))
	nodeReplies := make([]redisconn.Reply, len(which))
	for i, at := range which {
		nodeCmds[i] = cmds[at]
	}
	c.pool(addr).do(ctx, nodeCmds, nodeReplies)
	for i, at := range which {
		replies[at] = c.follow(ctx, addr, nodeCmds[i], nodeReplies[i])
	}
}

// follow sends a command to the node that the reply redirects to, up to maxRedirects
// times, and returns the last reply.
func (c *cluster) follow(ctx context.Context, from string, cmd redisconn.Cmd, reply redisconn.Reply) redisconn.Reply {
	for range maxRedirects {
		c.reloadAfter(reply.Err)
		to, ask := redirect(from, reply.Err)
		if to == "" {
			return reply
		}
		from = to
		cmds := []redisconn.Cmd{cmd}
		if ask {
			cmds = []redisconn.Cmd{redisconn.Command("ASKING"), cmd}
		}
		replies := make([]redisconn.Reply, len(cmds))
		c.pool(to).do(ctx, cmds, replies)
		reply = replies[len(cmds)-1]
	}
	c.reloadAfter(reply.Err)
	return reply
}

// redirect returns the address in a MOVED or ASK error of the node from, or "". ask
// reports an ASK, which applies to one command only.
func redirect(from string, err error) (to string, ask bool) {
	var server redisconn.ServerError
	if !errors.As(err, &server) {
		return "", false
	}
	words := strings.Fields(string(server))
	if len(words) < 3 || words[0] != "MOVED" && words[0] != "ASK" {
		return "", false
	}
	host, port, err := net.SplitHostPort(words[2])
	if err != nil {
		return "", false
	}
	return slots.Address(host, port, from), words[0] == "ASK"
}

// Replicate implements redisconn.Conn.
func (c *cluster) Replicate(ctx context.Context, call redisconn.Cmd, wait redisconn.Wait, answered func(redisconn.Reply) bool) redisconn.Reply {
	addr, err := c.nodeFor(ctx, call)
	if err != nil {
		answered(redisconn.Reply{Err: err})
		return redisconn.Reply{Err: err}
	}
	for redirects := 0; ; redirects++ {
		to, ask := "", false
		acks := c.pool(addr).replicate(ctx, call, wait, func(r redisconn.Reply) bool {
			c.reloadAfter(r.Err)
			if to, ask = redirect(addr, r.Err); to != "" && !ask && redirects < maxRedirects {
				return false
			}
			to = ""
			return answered(r)
		})
		if to == "" {
			return acks
		}
		addr = to
	}
}

// Subscribe implements redisconn.Conn. Any node will do: the cluster forwards a
// published message to all of them.
func (c *cluster) Subscribe(ctx context.Context, channel string, busy func() bool, on func(message string)) error {
	addr, err := c.anyNode(ctx)
	if err != nil {
		return err
	}
	err = c.pool(addr).subscribe(ctx, channel, busy, on)
	c.reloadAfter(err)
	return err
}

// Masters implements redisconn.Conn.
func (c *cluster) Masters(ctx context.Context, visit func(redisconn.Node) error) error {
	if err := c.reload(ctx); err != nil {
		return err
	}
	masters, err := c.masters(ctx)
	for _, addr := range masters {
		if err == nil {
			err = visit(c.pool(addr).node(addr))
		}
	}
	return err
}

// FullPool implements redisconn.Pool.
func (c *cluster) FullPool(key string) string {
	c.mu.Lock()
	owner, _ := slots.Find(c.slotMap, slots.Of(key))
	var pool *source
	if len(owner.Nodes) > 0 {
		pool = c.pools[owner.Master()]
	}
	c.mu.Unlock()
	if pool == nil {
		return ""
	}
	return pool.fullPool()
}

// Refresh implements redisconn.Refresher.
func (c *cluster) Refresh() {
	go func() { _ = c.reload(context.Background()) }() // if it fails, the next error reloads
}

// pool returns the pool of a node.
func (c *cluster) pool(addr string) *source {
	c.mu.Lock()
	defer c.mu.Unlock()
	pool := c.pools[addr]
	if pool == nil {
		pool = &source{Pool: c.open(addr)}
		if pool.Pool == nil {
			pool.Pool = &redis.Pool{Dial: func() (redis.Conn, error) {
				return nil, fmt.Errorf("%w: the redigo pool for %s is nil", driver.ErrInvalid, addr)
			}}
		}
		c.pools[addr] = pool
	}
	return pool
}

// masters returns the addresses of the nodes that own slots: at least one.
func (c *cluster) masters(ctx context.Context) ([]string, error) {
	slotMap, err := c.loadedSlotMap(ctx)
	if err != nil {
		return nil, err
	}
	addrs := make([]string, len(slotMap))
	for i, r := range slotMap {
		addrs[i] = r.Master()
	}
	slices.Sort(addrs)
	return slices.Compact(addrs), nil
}

// anyNode returns the address of a random master.
func (c *cluster) anyNode(ctx context.Context) (string, error) {
	masters, err := c.masters(ctx)
	if err != nil {
		return "", err
	}
	return masters[rand.IntN(len(masters))], nil
}

// owner returns the address of the node that owns a slot.
func (c *cluster) owner(ctx context.Context, slot int) (string, error) {
	slotMap, err := c.loadedSlotMap(ctx)
	if err != nil {
		return "", err
	}
	if r, ok := slots.Find(slotMap, slot); ok {
		return r.Master(), nil
	}
	err = fmt.Errorf("no node of the cluster owns slot %d", slot)
	c.reloadAfter(err)
	return "", err
}

// loadedSlotMap returns the slot map, and loads it first if there is none.
func (c *cluster) loadedSlotMap(ctx context.Context) ([]slots.Range, error) {
	c.mu.Lock()
	slotMap := c.slotMap
	c.mu.Unlock()
	if slotMap != nil {
		return slotMap, nil
	}
	if err := c.reload(ctx); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.slotMap, nil
}

// reloadAfter reloads the slot map in the background after a connection error or a MOVED
// reply.
func (c *cluster) reloadAfter(err error) {
	var server redisconn.ServerError
	if err == nil || errors.Is(err, redisconn.ErrClosed) || errors.As(err, &server) && !strings.HasPrefix(string(server), "MOVED") {
		return
	}
	c.mu.Lock()
	due := time.Since(c.reloaded) >= reloadPause
	if due {
		c.reloaded = time.Now()
	}
	c.mu.Unlock()
	if due {
		c.Refresh()
	}
}

// reload loads the slot map from the first of some random nodes that answers. It queries
// them all at once, so a node that does not answer costs no time.
func (c *cluster) reload(ctx context.Context) error {
	c.mu.Lock()
	c.reloaded = time.Now()
	nodes := slices.Clone(c.nodes)
	c.mu.Unlock()
	rand.Shuffle(len(nodes), func(i, j int) { nodes[i], nodes[j] = nodes[j], nodes[i] })
	nodes = nodes[:min(len(nodes), maxQueried)]
	replies := make(chan error, len(nodes))
	var once sync.Once
	for _, addr := range nodes {
		go func() {
			slotMap, all, err := c.query(ctx, addr)
			if err == nil {
				once.Do(func() { c.set(slotMap, all) })
			}
			replies <- err
		}()
	}
	errs := make([]error, 0, len(nodes))
	for range nodes {
		err := <-replies
		if err == nil {
			return nil
		}
		errs = append(errs, err)
	}
	return fmt.Errorf("load the slot map of the cluster: all queried nodes failed: %w", errors.Join(errs...))
}

func (c *cluster) set(slotMap []slots.Range, nodes []string) {
	nodes = append(nodes, c.seeds...)
	slices.Sort(nodes)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.slotMap, c.nodes = slotMap, slices.Compact(nodes)
}

// query returns the slot map of one node, and all nodes in it.
func (c *cluster) query(ctx context.Context, addr string) (slotMap []slots.Range, nodes []string, err error) {
	var reply [1]redisconn.Reply
	c.pool(addr).do(ctx, []redisconn.Cmd{redisconn.Command("CLUSTER", "SLOTS")}, reply[:])
	if reply[0].Err != nil {
		return nil, nil, fmt.Errorf("%s: %w", addr, reply[0].Err)
	}
	slotMap, err = slots.Parse(reply[0].Value, addr)
	for _, r := range slotMap {
		nodes = append(nodes, r.Nodes...)
	}
	return slotMap, nodes, err
}
