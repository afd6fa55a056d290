package main

import (
	"errors"
	"time"
)

// stall stops a server.
func stall(_ *fixture, c config) ([]*table, error) {
	t := &table{
		name:    "storm-stall",
		about:   []string{"20 clients in 4 processes hold 5,000 leases each, with a TTL of 15 s. Their server is stopped.", aboutQuiet, aboutWork, aboutLost},
		load:    "case",
		columns: stormColumns(),
		bars:    []bar{atMost("lost", 0), atMost("of quiet", 2)},
	}
	return onRedis(t, c, storm{name: "stop of 3 s", clients: 20, leases: 5000, ttl: 15 * time.Second, fault: stop, lasts: 3 * time.Second})
}

// cut cuts a server's connections.
func cut(_ *fixture, c config) ([]*table, error) {
	t := &table{
		name: "storm-cut",
		about: []string{
			"20 clients in 4 processes hold 5,000 leases each, with the default TTL of 30 s. A proxy cuts all connections.",
			"drop: bytes are lost for 5 s, and then the connections are reset. refuse: connections are reset for 5 s, new ones at once.",
			aboutQuiet, aboutWork, aboutLost,
		},
		load:    "case",
		columns: stormColumns(),
		bars:    []bar{atMost("lost", 0)},
	}
	s := storm{clients: 20, leases: 5000, ttl: 30 * time.Second, cuts: true, lasts: 5 * time.Second}
	drop, refuse := s, s
	drop.name, drop.fault = "drop", dropAll
	refuse.name, refuse.fault = "refuse", refuseAll
	return onRedis(t, c, drop, refuse)
}

// limited limits a server's CPU time.
func limited(_ *fixture, c config) ([]*table, error) {
	about := []string{
		"Clients in 4 processes hold leases with a TTL of 15 s. From when they are held, the server has a part of a processor.",
		"need: what the server used on average without a limit.", aboutQuiet, aboutWork, aboutLost,
	}
	columns := stormColumns()
	t := &table{name: "storm-limit", about: about, load: "case", columns: columns, bars: []bar{atMost("lost", 0)}}
	report := &table{name: "storm-limit too little", about: append(about, "No client can keep its leases here: this table has no bar."), load: "case", columns: columns}
	if err := canLimit(); err != nil {
		return skipped(err, t, report), nil
	}
	large := storm{clients: 20, leases: 5000, ttl: 15 * time.Second, lasts: 3 * time.Second}
	small := large
	small.leases = 250
	with := func(s storm, name string, limit, need float64, fault func(*fixture, time.Duration) error) storm {
		s.name, s.limit, s.need, s.fault = name, limit, need, fault
		return s
	}
	_, err := onRedis(t, c,
		with(large, "20×5000 at 30 %", 0.3, 0, none),
		with(large, "20×5000 at 30 %, stop of 3 s", 0.3, 0, stop),
		with(small, "20×250 at 5 %, stop of 3 s", 0.05, 0, stop),
		with(large, "20×5000 at 1.2 of the need", 0, 1.2, none))
	if err != nil {
		return nil, err
	}
	_, err = onRedis(report, c, with(large, "20×5000 at 0.5 of the need", 0, 0.5, none))
	return []*table{t, report}, err
}

// restarted restarts a server with persistent data.
func restarted(_ *fixture, c config) ([]*table, error) {
	t := &table{
		name: "storm-restart",
		about: []string{
			"1,000 clients in 4 processes hold a lease each, with the default TTL of 30 s, and wait for that of another one. Their server is killed, and started again with its data.",
			"unserved: waiters that have no lock 30 s after all leases are unlocked, at the end.", aboutQuiet, aboutWork, aboutLost,
		},
		load:    "case",
		columns: append(stormColumns(), column{"unserved", 0, maximum}),
		bars:    []bar{atMost("lost", 0), atMost("of before", 1.3), atMost("MB ratio", 2), atMost("unserved", 0)},
	}
	restart := func(b *fixture, _ time.Duration) error { return b.nodes[0].Restart() }
	s := storm{name: "restart", clients: 1000, leases: 1, waiters: true, ttl: 30 * time.Second, fault: restart, restarts: true}
	b, err := newRedis(1, "--appendonly", "yes")
	if err != nil {
		return nil, err
	}
	defer b.close()
	t.addStorms(b, c, ours, []storm{s})
	return []*table{t}, nil
}

// onRedis measures storms on a Redis server, and adds them to the table.
func onRedis(t *table, c config, all ...storm) ([]*table, error) {
	b, err := newRedis(1)
	if err != nil {
		return nil, err
	}
	defer b.close()
	t.addStorms(b, c, ours, all)
	return []*table{t}, nil
}

// skipped notes in tables why they are empty.
func skipped(why error, tables ...*table) []*table {
	for _, t := range tables {
		t.notes = append(t.notes, "skipped, because "+why.Error())
		t.server = "no server"
	}
	return tables
}

// errNoCgroup says why a processor cannot be limited.
var errNoCgroup = errors.New("a limit of the processor time needs the user root and /sys/fs/cgroup/cpu of cgroup v1")
