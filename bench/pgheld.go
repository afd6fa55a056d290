package main

import "fmt"

// pgHeld measures the cost of many leases in a process on PostgreSQL.
func pgHeld(b *fixture, c config) ([]*table, error) {
	t := &table{
		name: "pg-held",
		about: []string{
			fmt.Sprintf("One process holds and renews leases with a TTL of %v for %v, in one client.", c.heldTTL, c.heldFor),
			"baseline-renew@batch: a set of names, and one goroutine that extends 500 in a statement.",
			"B: heap and stacks in use after a collection, for each lease. wire: statements for each lease and TTL.",
			"per call: leases renewed by one statement. server µs: CPU time for each lease and TTL.",
			"lost: reported by the peer, or missing on the server.",
		},
		columns: []column{
			{"leases", 0, median}, {"goroutines", 3, median}, {"B", 0, median}, {"wire", 4, median},
			{"renewals", 0, median}, {"per call", 0, median}, {"server µs", 1, median}, {"lost", 0, maximum},
		},
		bars: []bar{atMost("goroutines", 0.001), atMost("B", 600), atLeast("per call", 500), atMost("lost", 0)},
	}
	for _, peer := range c.chosen("baseline-renew@batch", "dibs") {
		progress("pg-held, %d leases of %s", c.pgHeld, peer)
		f, used, err := b.hold(c, peer, c.pgHeld)
		if err != nil {
			return nil, err
		}
		f["renewals"], f["per call"] = used.sum("renewals"), used.sum("renewed")/used.sum("renewals")
		t.row("", peer).runs = []figures{f}
	}
	return []*table{t}, nil
}
