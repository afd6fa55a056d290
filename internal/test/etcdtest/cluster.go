package etcdtest

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/dibslock/dibs/internal/test/spawn"
)

// A Cluster is a group of members. A test can cut the connections between them. It is safe for
// concurrent use.
type Cluster struct {
	Members []*Server
	network *network
}

// StartCluster starts a cluster with n members, and waits until all are healthy. See [Start] for
// args. The caller closes it; on Linux it also ends with this process.
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
	var peers, all []string
	for i := range n {
		port, err := spawn.FreePort()
		if err != nil {
			return err
		}
		peers = append(peers, fmt.Sprintf("127.0.0.1:%d", port))
		all = append(all, name(i)+"=http://"+advertised(i))
	}
	for i := range n {
		s, err := prepare()
		if err != nil {
			return err
		}
		c.Members = append(c.Members, s)
		s.args = slices.Concat(s.flags(name(i), "http://"+peers[i], "http://"+advertised(i)), []string{
			"--initial-cluster=" + strings.Join(all, ","),
			// The members of other clusters have the same URLs.
			"--initial-cluster-token=" + filepath.Base(c.Members[0].Dir),
		}, args)
	}
	if err := c.network.open(peers); err != nil {
		return err
	}
	for i, s := range c.Members {
		s.Env = c.network.environment(i)
	}
	return nil
}

// name returns the name of a member.
func name(i int) string { return fmt.Sprintf("member%d", i) }

// each calls a function for all members at the same time: a member is healthy only with others.
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
