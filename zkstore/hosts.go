package zkstore

import (
	"math/rand/v2"
	"sync"
)

// hosts offers the servers in turn, for the library. Unlike the library's own list, it looks no
// names up: each new connection does.
type hosts struct {
	mu      sync.Mutex
	servers []string
	next    int
	failed  int // attempts since the last connection
}

// Init implements zk.HostProvider.
func (h *hosts) Init(servers []string) error {
	h.servers, h.next = servers, rand.IntN(len(servers))
	return nil
}

// Len implements zk.HostProvider.
func (h *hosts) Len() int { return len(h.servers) }

// Next implements zk.HostProvider. The library makes a pause if it tried all servers.
func (h *hosts) Next() (server string, pause bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	server = h.servers[h.next]
	h.next = (h.next + 1) % len(h.servers)
	h.failed++
	return server, h.failed > len(h.servers) && h.failed%len(h.servers) == 1%len(h.servers)
}

// Connected implements zk.HostProvider.
func (h *hosts) Connected() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.failed = 0
}
