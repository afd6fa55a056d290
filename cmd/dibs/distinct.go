package main

import (
	"context"
	"net"
	"slices"
	"strings"
	"sync"
	"time"
)

// A lookup returns a host's addresses.
type lookup func(ctx context.Context, host string) ([]string, error)

// checkDistinct rejects a quorum with two nodes on the same server, even on different databases: if
// this server fails, two votes are gone. A server can have several names, so their addresses are
// also compared. If a name has no address, the quorum itself finds out: nodes with the same store
// ID have a single vote.
func checkDistinct(nodes []node, find lookup) error {
	servers := addressesOf(nodes, find)
	for i, n := range nodes {
		for j, other := range nodes[:i] {
			same := func(address string) bool { return slices.Contains(servers[j], address) }
			if serverOf(n.location) == serverOf(other.location) || slices.ContainsFunc(servers[i], same) {
				return usage("nodes %d and %d of the quorum are the same server: %s", j, i, n.location)
			}
		}
	}
	return nil
}

// addressesOf returns each node's addresses, with ports, if they can be found within a second.
func addressesOf(nodes []node, find lookup) [][]string {
	const limit = time.Second
	all := make([][]string, len(nodes))
	if len(nodes) < 2 {
		return all
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	var group sync.WaitGroup
	for i, n := range nodes {
		host, port, err := net.SplitHostPort(serverOf(n.location))
		if err != nil {
			continue // a socket, or several servers with a single master
		}
		group.Go(func() {
			found, _ := find(ctx, host) // nil on failure
			for _, address := range found {
				all[i] = append(all[i], net.JoinHostPort(address, port))
			}
		})
	}
	group.Wait()
	return all
}

// serverOf returns a URL without its scheme and its database.
func serverOf(where string) string {
	_, server, _ := strings.Cut(where, "://")
	if i := strings.LastIndexAny(server, "/?"); i >= 0 {
		server = server[:i]
	}
	return server
}
