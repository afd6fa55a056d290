package zktest

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"

	"github.com/dibslock/dibs/internal/test/spawn"
)

// A Cluster is a ZooKeeper ensemble. A test can cut the connections between its members. It is safe
// for concurrent use.
type Cluster struct {
	Members []*Server
	network *network
}

// StartCluster starts an ensemble with n members, and waits until all serve clients. See [Start] for
// args. The caller closes it; on Linux it also ends with this process.
//
// A member loses its leader, or a leader its followers, after a silence of about 2 s (4 ticks).
func StartCluster(n int, args ...string) (*Cluster, error) {
	c := &Cluster{network: &network{}}
	err := c.create(n, args)
	if err == nil {
		err = c.each((*Server).Restart)
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// create creates the members, and the network between them.
func (c *Cluster) create(n int, args []string) error {
	for range n {
		s, err := newServer()
		if err != nil {
			return err
		}
		c.Members = append(c.Members, s)
	}
	peers, err := c.peers()
	if err != nil {
		return err
	}
	settings := c.settings(peers)
	if err := c.network.open(peers); err != nil {
		return err
	}
	for i, s := range c.Members {
		if err := errors.Join(s.identify(i), s.configure(settings, c.network.flags(i), args)); err != nil {
			return err
		}
	}
	return nil
}

// A peer contains the ports where a member listens for other members.
type peer struct{ leading, electing int }

func (c *Cluster) peers() ([]peer, error) {
	var peers []peer
	for range c.Members {
		leading, err := spawn.FreePort()
		if err != nil {
			return nil, err
		}
		electing, err := spawn.FreePort()
		if err != nil {
			return nil, err
		}
		peers = append(peers, peer{leading, electing})
	}
	return peers, nil
}

// settings returns the settings of every member.
func (c *Cluster) settings(peers []peer) []string {
	settings := []string{
		"initLimit=20",
		"syncLimit=4",
		// After a partition a member would ask for a leader once a minute.
		"fastleader.maxNotificationInterval=500",
	}
	for i, peer := range peers {
		settings = append(settings, fmt.Sprintf("server.%d=127.0.0.1:%d:%d", i+1, peer.leading, peer.electing))
	}
	return settings
}

// identify writes the number of a member.
func (s *Server) identify(i int) error {
	return errors.Join(os.Mkdir(s.Path("data"), 0o700), os.WriteFile(s.Path("data/myid"), []byte(strconv.Itoa(i+1)), 0o600))
}

// each calls a function for all members at the same time: a member serves only with others.
func (c *Cluster) each(do func(*Server) error) error {
	errs := make([]error, len(c.Members))
	var calls sync.WaitGroup
	for i, s := range c.Members {
		calls.Go(func() { errs[i] = do(s) })
	}
	calls.Wait()
	return errors.Join(errs...)
}

// Endpoints returns the addresses for clients, in the order of Members.
func (c *Cluster) Endpoints() []string {
	var endpoints []string
	for _, s := range c.Members {
		endpoints = append(endpoints, s.Endpoint())
	}
	return endpoints
}

// Close ends all members and removes their files.
func (c *Cluster) Close() error {
	err := c.each(func(s *Server) error { return s.Close() })
	c.network.close()
	return err
}
