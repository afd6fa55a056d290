package main

// pgUncontended measures locks on PostgreSQL without contention.
func pgUncontended(b *fixture, c config) ([]*table, error) {
	t := &table{
		name: "pg-uncontended",
		about: []string{
			"G goroutines of one process lock and unlock names of their own. One pair is a Lock and an Unlock.",
			"baseline: INSERT … ON CONFLICT, and DELETE. advisory: pg_advisory_lock; try-advisory: pg_try_advisory_lock; both on a connection of their own for each lock.",
			"A process has up to 16 connections. Advisory locks do not commit anything to the disk.",
		},
		load: "G",
		columns: []column{
			{"pairs/s", 0, median}, {"ratio", 2, median}, {"p50 µs", 0, median}, {"p99 µs", 0, median},
			{"allocs", 1, median}, {"over baseline", 1, median}, {"client µs", 1, median}, {"server µs", 1, median},
		},
		bars: []bar{atLeast("ratio", 0.8)},
	}
	c.goroutines = withoutLargest(c.goroutines)
	return t.pairs(b, c, "baseline", c.chosen("dibs", "advisory", "try-advisory@10ms")...)
}

// withoutLargest removes goroutine counts that only measure how the server's processes share the
// cores.
func withoutLargest(goroutines numbers) (few numbers) {
	for _, n := range goroutines {
		if n <= poolSize {
			few = append(few, n)
		}
	}
	return few
}
