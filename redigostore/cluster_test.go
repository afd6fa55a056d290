package redigostore_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/internal/drill"
	"github.com/dibslock/dibs/internal/redistest"
)

// twoNodes starts a cluster of two nodes. The first owns all slots.
func twoNodes(t *testing.T) (a, b *redistest.Server, idA string) {
	t.Helper()
	a, b = redistest.StartClusterNode(t), redistest.StartClusterNode(t)
	b.MustCmd(t, "CLUSTER", "FLUSHSLOTS")
	host, port, _ := net.SplitHostPort(a.Addr())
	b.MustCmd(t, "CLUSTER", "MEET", host, port, fmt.Sprint(a.BusPort()))
	for _, s := range []*redistest.Server{a, b} {
		drill.Eventually(t, "the nodes know each other", func() bool {
			nodes := fmt.Sprint(s.MustCmd(t, "CLUSTER", "NODES"))
			state := fmt.Sprint(s.MustCmd(t, "CLUSTER", "INFO"))
			return strings.Count(nodes, " connected") == 2 && !strings.Contains(nodes, "handshake") && strings.Contains(state, "cluster_state:ok")
		})
	}
	return a, b, fmt.Sprint(a.MustCmd(t, "CLUSTER", "MYID"))
}

func TestMoved(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3, 0)
	slot := redistest.Slot(key)
	from, err := c.MasterOf(slot)
	if err != nil {
		t.Fatal(err)
	}
	locks := open(t, cluster(t, []string{from.Addr()}), dibs.Timeout(10*time.Second))
	drill.Unlock(t, drill.Lock(t, locks, job))
	for _, to := range c.Nodes() {
		if to == from {
			continue
		}
		if err := c.Migrate(to, slot); err != nil {
			t.Fatal(err)
		}
		l, err := locks.Mutex(job).TryLock(t.Context()) // does not retry
		if err != nil {
			t.Fatal(err)
		}
		if to.MustCmd(t, "GET", key) != l.Token() {
			t.Error("the lock is not on the node that owns its slot")
		}
		drill.Unlock(t, l)
	}
}

// After a node has died, the slot map is loaded from another node.
func TestPromotion(t *testing.T) {
	t.Parallel()
	a, b, idA := twoNodes(t)
	locks := open(t, cluster(t, []string{a.Addr(), b.Addr()}), dibs.TTL(time.Minute))
	drill.Unlock(t, drill.Lock(t, locks, job))
	b.MustCmd(t, "CLUSTER", "REPLICATE", idA)
	drill.Eventually(t, "the replica is connected", func() bool {
		return strings.Contains(fmt.Sprint(b.MustCmd(t, "INFO", "replication")), "master_link_status:up")
	})
	l := drill.Lock(t, locks, job)
	drill.Eventually(t, "the replica has the lock", func() bool {
		return a.MustCmd(t, "DBSIZE") == b.MustCmd(t, "DBSIZE")
	})
	a.Kill()
	b.MustCmd(t, "CLUSTER", "FAILOVER", "TAKEOVER")
	start := time.Now()
	drill.Unlock(t, obtain(t, locks, job+" 2"))
	t.Logf("the new master is found after %v", time.Since(start))
	drill.Unlock(t, l)
}

func TestAsk(t *testing.T) {
	t.Parallel()
	home := redistest.StartClusterNode(t)
	locks := open(t, cluster(t, []string{askingNode(t, home.Addr())}))
	drill.Unlock(t, drill.Lock(t, locks, job))
	stats := fmt.Sprint(home.MustCmd(t, "INFO", "commandstats"))
	if !strings.Contains(stats, "cmdstat_asking") {
		t.Errorf("the node did not receive ASKING: %s", stats)
	}
}

// askingNode starts a fake node that says that it owns all slots, and redirects each script
// to another node with ASK.
func askingNode(t *testing.T, to string) string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	port := listener.Addr().(*net.TCPAddr).Port
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				for r := bufio.NewReader(conn); ; {
					cmd, err := command(r)
					switch {
					case err != nil:
						return
					case cmd[0] == "CLUSTER" && cmd[1] == "SLOTS": // without its own host
						fmt.Fprintf(conn, "*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$-1\r\n:%d\r\n", port)
					case strings.HasPrefix(cmd[0], "EVAL"):
						fmt.Fprintf(conn, "-ASK 1 %s\r\n", to)
					default:
						fmt.Fprint(conn, "-ERR unknown command\r\n")
					}
				}
			}()
		}
	}()
	return listener.Addr().String()
}

// command reads one command from a client.
func command(r *bufio.Reader) (cmd []string, err error) {
	n, err := number(r, '*')
	for i := 0; i < n && err == nil; i++ {
		var size int
		if size, err = number(r, '$'); err == nil {
			text := make([]byte, size+len("\r\n"))
			_, err = io.ReadFull(r, text)
			cmd = append(cmd, string(text[:size]))
		}
	}
	return cmd, err
}

func number(r *bufio.Reader, kind byte) (int, error) {
	line, err := r.ReadString('\n')
	if err != nil || line[0] != kind {
		return 0, errors.Join(err, errors.New("no "+string(kind)))
	}
	return strconv.Atoi(strings.TrimSpace(line[1:]))
}

func TestNoClusterAnswers(t *testing.T) {
	t.Parallel()
	for what, addr := range map[string]string{"nothing": "127.0.0.1:1", "no cluster": redistest.Start(t).Addr()} {
		locks := open(t, cluster(t, []string{addr}), dibs.Timeout(3*time.Second))
		if _, err := locks.Mutex(job).Lock(drill.Within(t, drill.Generous)); !errors.Is(err, dibs.ErrUnavailable) || !strings.Contains(err.Error(), addr) {
			t.Errorf("%s: have %v, want unavailable with the address of the node", what, err)
		}
	}
}
