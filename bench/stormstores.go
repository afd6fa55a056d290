package main

import (
	"errors"
	"time"

	"github.com/dibslock/dibs/internal/test/mysqltest"
	"github.com/dibslock/dibs/internal/test/pgtest"
)

// otherStores are the stores other than a single Redis server, each with the error for a machine
// without such a server.
var otherStores = []struct {
	name  string
	start func() (*fixture, error)
	none  error
	cuts  bool // whether it has connections
}{
	{"quorum of 3", func() (*fixture, error) { return newRedis(3) }, nil, true},
	{"PostgreSQL", func() (*fixture, error) { return newPostgres() }, pgtest.ErrNoServer, true},
	{"MariaDB", newMaria, mysqltest.ErrNoServer, true},
	{"local file", newLocal, nil, false},
}

// stores stops and cuts the other stores' servers.
func stores(_ *fixture, c config) ([]*table, error) {
	t := &table{
		name: "storm-stores",
		about: []string{
			"4 clients in 4 processes hold 2,500 leases each, with a TTL of 15 s. All servers are stopped for 3 s, or all connections lose their bytes for 5 s and are reset.",
			"The local file is blocked by a transaction for 3 s.", aboutQuiet, "cpu: of the servers, of one processor; the local file has none.", aboutLost,
		},
		load:    "case",
		columns: []column{{"leases", 0, median}, {"early", 0, maximum}, {"lost", 0, maximum}, {"cpu %", 1, median}, {"cpu after", 1, maximum}},
		bars:    []bar{atMost("lost", 0)},
		server:  "several servers",
	}
	for _, store := range otherStores {
		s := storm{name: store.name + ", stop", clients: 4, leases: 2500, ttl: 15 * time.Second, fault: stop, lasts: 3 * time.Second}
		all := []storm{s}
		if store.cuts {
			s.name, s.cuts, s.fault, s.lasts = store.name+", cut", true, dropAll, 5*time.Second
			all = append(all, s)
		}
		b, err := store.start()
		if store.none != nil && errors.Is(err, store.none) {
			skipped(err, t)
			continue
		}
		if err != nil {
			return nil, err
		}
		t.addStorms(b, c, ours, all)
		b.close()
	}
	return []*table{t}, nil
}
