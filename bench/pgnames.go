package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"time"
)

// pgNames measures the table sizes on PostgreSQL after many names were used once each.
func pgNames(b *fixture, c config) ([]*table, error) {
	t := &table{
		name: "pg-names",
		about: []string{
			fmt.Sprintf("%d goroutines of one process lock and unlock each name once. The sizes are those after N names.", atOnce),
			fmt.Sprintf("The last row: a pause of %v, and locks of 64 names until the removal has looked at all names.", c.idle),
			"minutes: rows that are left, as the time in which this many names are used. dead: row versions that no vacuum has removed.",
			"vacuums, vacuum s: how often autovacuum has processed the table so far, and how long.",
		},
		load: "N",
		columns: []column{
			{"pairs/s", 0, median}, {"rows", 0, median}, {"minutes", 2, median}, {"table MB", 1, median}, {"index MB", 1, median}, {"dead", 0, median},
			{"vacuums", 0, median}, {"vacuum s", 1, median},
		},
		bars: []bar{atMost("minutes", 2)},
	}
	for _, peer := range c.chosen("baseline", "dibs") {
		if err := b.useNames(t, c, peer); err != nil {
			return nil, err
		}
	}
	return []*table{t}, nil
}

// namesPerPart is the number of names between two size measurements.
const namesPerPart = 50_000

// A namesPart is a part of a worker's names.
type namesPart struct{ From, To, Distinct int }

// useNames uses all names and measures the tables after each part.
func (b *fixture) useNames(t *table, c config, peer string) error {
	group, err := b.startWorkers(order{Job: "names", Peer: peer + b.at, Addrs: b.addrs(), TTL: leaseTTL, Name: b.name(), Workers: 1})
	defer group.stop()
	if err != nil {
		return err
	}
	s := b.nodes[0].server.(*pgServer)
	use := func(p namesPart) (rate float64, err error) {
		var took time.Duration
		if err := group.send(p); err != nil {
			return 0, err
		}
		err = group.workers[0].receive(&took)
		return float64(p.To-p.From) / took.Seconds(), err
	}
	var f figures
	total := 0.0 // seconds
	for from := 0; from < c.names; from += namesPerPart {
		p := namesPart{From: from, To: min(from+namesPerPart, c.names), Distinct: c.names}
		rate, err := use(p)
		if err != nil {
			return err
		}
		if f, err = s.sizes(peer); err != nil {
			return err
		}
		total += float64(p.To-p.From) / rate
		f["pairs/s"], f["minutes"] = rate, f["rows"]/(float64(p.To)/total)/60
		t.row(strconv.Itoa(p.To), peer).runs = []figures{f}
		progress("%s, %s: %d names, %.0f pairs/s, %.0f rows, %.1f MB", t.name, peer, p.To, rate, f["rows"], f["table MB"])
	}
	if isBaseline(peer) {
		return nil // it leaves no rows
	}
	time.Sleep(c.idle)
	const each, part = 64, 10_000
	rate := 0.0
	for left := int(f["rows"]) / 3; left > 0; left -= part { // each acquire pays for four rows
		if rate, err = use(namesPart{To: min(left, part), Distinct: each}); err != nil {
			return err
		}
	}
	time.Sleep(time.Second) // the statistics are late
	if f, err = s.sizes(peer); err != nil {
		return err
	}
	f["pairs/s"] = rate
	t.row("end", peer).runs = []figures{f}
	return nil
}

// namesJob locks and unlocks names in parts, and reports how long each part took.
func namesJob(o order, p peer, t link) error {
	for {
		var part namesPart
		if err := t.in.Decode(&part); err != nil {
			return err
		}
		begin := now()
		err := concurrently(part.To-part.From, func(i int) error {
			return pair(context.Background(), p, fmt.Sprintf("%s:order:%d", o.Name, (part.From+i)%part.Distinct))
		})
		if err != nil {
			return err
		}
		if err := t.out.Encode(now() - begin); err != nil {
			return err
		}
	}
}

// sizes returns the figures for a peer's table.
func (s *pgServer) sizes(peer string) (figures, error) {
	ctx := context.Background()
	name := "dibs.names"
	if isBaseline(peer) {
		name = "public.bare_locks"
	}
	var rows, table, index, dead, vacuums float64
	var data string
	err := s.admin.QueryRow(ctx, `
		SELECT (SELECT count(*) FROM `+name+`), pg_table_size(relid) / 1e6, pg_indexes_size(relid) / 1e6, n_dead_tup, autovacuum_count,
			current_setting('data_directory')
		FROM pg_stat_user_tables WHERE relid = $1::text::regclass`, name).Scan(&rows, &table, &index, &dead, &vacuums, &data)
	if err != nil {
		return nil, err
	}
	log, err := os.ReadFile(filepath.Join(filepath.Dir(data), "log"))
	if err != nil {
		return nil, err
	}
	took := 0.0
	for _, match := range regexp.MustCompile(`automatic vacuum of table "postgres\.`+name+`"(?s:.*?)elapsed: ([0-9.]+) s`).FindAllSubmatch(log, -1) {
		seconds, _ := strconv.ParseFloat(string(match[1]), 64)
		took += seconds
	}
	return figures{"rows": rows, "table MB": table, "index MB": index, "dead": dead, "vacuums": vacuums, "vacuum s": took}, nil
}
