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
	"github.com/dibslock/dibs/internal/slots"
	"github.com/dibslock/dibs/redisstore"
	"github.com/gomodule/redigo/redis"
)

// NewCluster returns a store on a Redis Cluster, of which it must know some nodes:
// host:port each. It asks these for the others, follows MOVED and ASK, and looks
// again who has which slots when a node does not answer.
//
// pool returns the pool for one node. It is called once for each, not concurrently,
// and does no I/O; keep what it returns, to close it in the end, and not before.
//
// Without nodes, or with a nil pool, each call returns dibs.ErrInvalid.
func NewCluster(nodes []string, pool func(addr string) *redis.Pool, options ...Option) *redisstore.Store {
	switch {
	case len(nodes) == 0:
		return redisstore.New(redisstore.Invalid("no node of the cluster is named"), options...)
	case pool == nil:
		return redisstore.New(redisstore.Invalid("the function that returns pools is nil"), options...)
	}
	c := &cluster{open: pool, nodes: slices.Clone(nodes), seeds: slices.Clone(nodes), pools: make(map[string]*source)}
	return redisstore.New(c, append([]Option{redisstore.Sharded()}, options...)...)
}

var _ redisstore.Refresher = (*cluster)(nil)

const (
	lookEvery = 200 * time.Millisecond // at most, while nodes fail
	hops      = 3                      // that one command is sent on
	witnesses = 5                      // are asked who has which slots
)

type cluster struct {
	open  func(addr string) *redis.Pool
	seeds []string

	mu     sync.Mutex
	pools  map[string]*source
	nodes  []string      // that are known, and may be asked about the others
	owners []slots.Range // nil until first needed
	looked time.Time
}

// Do implements redisstore.Conn: one round trip to each node, all at once.
func (c *cluster) Do(ctx context.Context, cmds []redisstore.Cmd, replies []redisstore.Reply) {
	byNode := make(map[string][]int)
	for i, cmd := range cmds {
		addr, err := c.place(ctx, cmd)
		if err != nil {
			replies[i] = redisstore.Reply{Err: err}
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

// place returns the address of the node that a command is for: any, if it has no key.
func (c *cluster) place(ctx context.Context, cmd redisstore.Cmd) (string, error) {
	if strings.HasPrefix(cmd[0], "EVAL") {
		return c.owner(ctx, slots.Of(cmd[3]))
	}
	return c.anyNode(ctx)
}

// send asks one node some of the commands, and follows where it sends them.
func (c *cluster) send(ctx context.Context, addr string, which []int, cmds []redisstore.Cmd, replies []redisstore.Reply) {
	some := make([]redisstore.Cmd, len(which))
	answers := make([]redisstore.Reply, len(which))
	for i, at := range which {
		some[i] = cmds[at]
	}
	c.pool(addr).do(ctx, some, answers)
	for i, at := range which {
		replies[at] = c.follow(ctx, addr, some[i], answers[i])
	}
}

// follow sends a command on while it is redirected, and returns the last answer.
func (c *cluster) follow(ctx context.Context, from string, cmd redisstore.Cmd, reply redisstore.Reply) redisstore.Reply {
	for range hops {
		c.notice(reply.Err)
		to, ask := redirect(from, reply.Err)
		if to == "" {
			return reply
		}
		from = to
		cmds := []redisstore.Cmd{cmd}
		if ask {
			cmds = []redisstore.Cmd{{"ASKING"}, cmd}
		}
		replies := make([]redisstore.Reply, len(cmds))
		c.pool(to).do(ctx, cmds, replies)
		reply = replies[len(cmds)-1]
	}
	c.notice(reply.Err)
	return reply
}

// redirect returns where a command must go, if the node that it came from says so;
// ask means for this once.
func redirect(from string, err error) (to string, ask bool) {
	var server redisstore.ServerError
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

// Replicate implements redisstore.Conn.
func (c *cluster) Replicate(ctx context.Context, cmd, wait redisstore.Cmd, answered func(redisstore.Reply) bool) redisstore.Reply {
	addr, err := c.place(ctx, cmd)
	if err != nil {
		answered(redisstore.Reply{Err: err})
		return redisstore.Reply{Err: err}
	}
	for hop := 0; ; hop++ {
		to, ask := "", false
		acks := c.pool(addr).replicate(ctx, cmd, wait, func(r redisstore.Reply) bool {
			c.notice(r.Err)
			if to, ask = redirect(addr, r.Err); to != "" && !ask && hop < hops {
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

// Subscribe implements redisstore.Conn. Any node passes on what is published on any
// other one.
func (c *cluster) Subscribe(ctx context.Context, channel string, on func(message string)) error {
	addr, err := c.anyNode(ctx)
	if err != nil {
		return err
	}
	err = c.pool(addr).subscribe(ctx, channel, on)
	c.notice(err)
	return err
}

// Masters implements redisstore.Conn.
func (c *cluster) Masters(ctx context.Context, visit func(redisstore.Node) error) error {
	if err := c.look(ctx); err != nil {
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

// Refresh implements redisstore.Refresher.
func (c *cluster) Refresh() {
	go func() { _ = c.look(context.Background()) }() // or the next failure does
}

// pool returns the pool of a node.
func (c *cluster) pool(addr string) *source {
	c.mu.Lock()
	defer c.mu.Unlock()
	known := c.pools[addr]
	if known == nil {
		known = &source{Pool: c.open(addr)}
		if known.Pool == nil {
			known.Pool = &redis.Pool{Dial: func() (redis.Conn, error) {
				return nil, fmt.Errorf("%w: the redigo pool of %s is nil", driver.ErrInvalid, addr)
			}}
		}
		c.pools[addr] = known
	}
	return known
}

// masters returns the nodes that have slots: at least one.
func (c *cluster) masters(ctx context.Context) ([]string, error) {
	owners, err := c.known(ctx)
	if err != nil {
		return nil, err
	}
	addrs := make([]string, len(owners))
	for i, o := range owners {
		addrs[i] = o.Master()
	}
	slices.Sort(addrs)
	return slices.Compact(addrs), nil
}

// anyNode returns the address of some master.
func (c *cluster) anyNode(ctx context.Context) (string, error) {
	masters, err := c.masters(ctx)
	if err != nil {
		return "", err
	}
	return masters[rand.IntN(len(masters))], nil
}

// owner returns the address of the node that has a slot.
func (c *cluster) owner(ctx context.Context, slot int) (string, error) {
	owners, err := c.known(ctx)
	if err != nil {
		return "", err
	}
	for _, o := range owners {
		if o.First <= slot && slot <= o.Last {
			return o.Master(), nil
		}
	}
	err = fmt.Errorf("no node of the cluster has slot %d", slot)
	c.notice(err)
	return "", err
}

// known returns who has which slots, as far as is known, and asks if nothing is.
func (c *cluster) known(ctx context.Context) ([]slots.Range, error) {
	c.mu.Lock()
	owners := c.owners
	c.mu.Unlock()
	if owners != nil {
		return owners, nil
	}
	if err := c.look(ctx); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.owners, nil
}

// notice looks again, in the background, after a node was not reached or has sent us
// away.
func (c *cluster) notice(err error) {
	var server redisstore.ServerError
	if err == nil || errors.Is(err, redisstore.ErrClosed) || errors.As(err, &server) && !strings.HasPrefix(string(server), "MOVED") {
		return
	}
	c.mu.Lock()
	again := time.Since(c.looked) >= lookEvery
	if again {
		c.looked = time.Now()
	}
	c.mu.Unlock()
	if again {
		c.Refresh()
	}
}

// look asks some nodes who has which slots, and believes the first that answers: one
// that does not costs no time.
func (c *cluster) look(ctx context.Context) error {
	c.mu.Lock()
	c.looked = time.Now()
	nodes := slices.Clone(c.nodes)
	c.mu.Unlock()
	rand.Shuffle(len(nodes), func(i, j int) { nodes[i], nodes[j] = nodes[j], nodes[i] })
	nodes = nodes[:min(len(nodes), witnesses)]
	answers := make(chan error, len(nodes))
	var once sync.Once
	for _, addr := range nodes {
		go func() {
			owners, all, err := c.ask(ctx, addr)
			if err == nil {
				once.Do(func() { c.learn(owners, all) })
			}
			answers <- err
		}()
	}
	errs := make([]error, 0, len(nodes))
	for range nodes {
		err := <-answers
		if err == nil {
			return nil
		}
		errs = append(errs, err)
	}
	return fmt.Errorf("no node of the cluster says who has which slots: %w", errors.Join(errs...))
}

func (c *cluster) learn(owners []slots.Range, nodes []string) {
	nodes = append(nodes, c.seeds...)
	slices.Sort(nodes)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.owners, c.nodes = owners, slices.Compact(nodes)
}

// ask returns who has which slots according to one node, and all nodes that it names.
func (c *cluster) ask(ctx context.Context, addr string) (owners []slots.Range, nodes []string, err error) {
	var reply [1]redisstore.Reply
	c.pool(addr).do(ctx, []redisstore.Cmd{{"CLUSTER", "SLOTS"}}, reply[:])
	if reply[0].Err != nil {
		return nil, nil, fmt.Errorf("%s: %w", addr, reply[0].Err)
	}
	owners, err = slots.Parse(reply[0].Value, addr)
	for _, o := range owners {
		nodes = append(nodes, o.Nodes...)
	}
	return owners, nodes, err
}
