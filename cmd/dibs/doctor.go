package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/dibslock/dibs/checkup"
	"github.com/dibslock/dibs/dashboard/view"
	"github.com/dibslock/dibs/driver"
	"github.com/spf13/cobra"
)

func doctorCmd(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "doctor",
		Short: "Check the store for problems that affect locks",
		Long: `Check each Redis, the PostgreSQL, MariaDB or MySQL database, or the members of
etcd or ZooKeeper, for settings that lose locks, for missing permissions, and
for clocks or slow disks. On each master, database or cluster, doctor acquires
and releases a lock on a random name. It changes no settings and no other locks.
Pass the --prefix and --replicas that your locks use.

For a local file, doctor acquires and releases a lock and prints the path.

Exit codes:

    0    no findings, or only notes and checks that were not possible
    1    warnings
    2    critical, or one of several servers is unreachable
    64   invalid command line
    125  all servers are unreachable`,
		Example: `  dibs doctor --url redis://cache:6379
  dibs doctor --url redis://a --url redis://b --url redis://c
  dibs doctor --url postgres://db.internal/app
  dibs doctor --url mysql://db.internal/app
  dibs doctor --url etcd://10.0.0.1,10.0.0.2,10.0.0.3
  dibs doctor --url zk://10.0.0.1,10.0.0.2,10.0.0.3
  dibs doctor --json | jq '.nodes[].findings[] | .subject'`,
		Args: argCount(0, 0),
		RunE: func(*cobra.Command, []string) error {
			return a.withStore(func(ctx context.Context, s *opened) error { return examineStore(ctx, a.con, s) })
		},
	}
}

// A report is doctor's output.
type report struct {
	Schema int          `json:"schema"`
	Worst  string       `json:"worst"` // a severity
	Nodes  []nodeReport `json:"nodes"`
}

type nodeReport struct {
	URL      string         `json:"url"`
	Reached  bool           `json:"reached"`
	Error    string         `json:"error,omitempty"` // why it was not reached
	Findings []view.Finding `json:"findings"`

	found checkup.Findings
	err   error // Error is its text
}

func examineStore(ctx context.Context, con *console, s *opened) error {
	nodes := examine(ctx, s)
	worst, reached := checkup.Note, false
	for _, n := range nodes {
		if errors.Is(n.err, driver.ErrInvalid) {
			return n.err // about the options, whatever the server
		}
		reached = reached || n.Reached
		worst = max(worst, n.found.Worst())
		if !n.Reached {
			worst = checkup.Critical
		}
	}
	code := worst.ExitCode()
	if !reached {
		code = exitTrouble
	}
	if con.json {
		return errors.Join(con.printJSON(report{view.Schema, worst.String(), nodes}), exitWith(code, nil))
	}
	return errors.Join(con.print(formatReports(nodes, con.colours())), exitWith(code, nil))
}

// examine checks all nodes concurrently.
func examine(ctx context.Context, s *opened) []nodeReport {
	if len(s.nodes) == 0 {
		found, err := tryLock(ctx, s)
		return []nodeReport{reportOf(s.location, found, err)}
	}
	nodes := make([]nodeReport, len(s.nodes))
	var all sync.WaitGroup
	for i, n := range s.nodes {
		all.Go(func() {
			found, err := checkup.Examine(ctx, n.store)
			if err != nil {
				err = cmp.Or(s.whySilent(), err)
			}
			nodes[i] = reportOf(n.location, found, err)
		})
	}
	all.Wait()
	return nodes
}

func reportOf(where string, found checkup.Findings, err error) nodeReport {
	n := nodeReport{URL: where, Reached: err == nil, Findings: view.FindingsOf(found), found: found}
	if err != nil {
		n.Error, n.err = strings.TrimPrefix(err.Error(), "dibs: "), err
	}
	return n
}

// tryLock acquires and releases a lock: the only check for a local file.
func tryLock(ctx context.Context, s *opened) (checkup.Findings, error) {
	locks := s.client()
	defer locks.Close()
	lease, err := locks.Mutex("dibs:doctor:" + rand.Text()).TryLock(ctx)
	if err == nil {
		err = lease.Unlock()
	}
	if err != nil {
		return nil, err
	}
	return checkup.Findings{{
		Severity: checkup.Note, Subject: "host",
		What:        "a lock was acquired and released; the locks are in a file of this host",
		Consequence: "they do not exclude processes on other hosts",
		Remedy:      "use --url redis://… for locks that several hosts share",
	}}, nil
}

// formatReports formats reports for people, in colours if paint is true.
func formatReports(nodes []nodeReport, paint bool) string {
	var b strings.Builder
	for i, n := range nodes {
		if i > 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "%s\n", n.URL)
		if !n.Reached {
			fmt.Fprintf(&b, "%s: %s\n", severity("unreachable", paint), view.Safe(n.Error))
			continue
		}
		for line := range strings.Lines(n.found.String()) {
			line = view.Safe(strings.TrimSuffix(line, "\n"))
			if word, rest, ok := strings.Cut(line, ": "); ok && !strings.HasPrefix(line, " ") {
				line = severity(word, paint) + ": " + rest
			}
			fmt.Fprintln(&b, line)
		}
	}
	return b.String()
}

// severity colours a severity's name, if paint is true.
func severity(word string, paint bool) string {
	code, ok := map[string]string{"unreachable": "1;31", "critical": "1;31", "warning": "33", "unchecked": "36", "note": "2"}[word]
	if !ok || !paint {
		return word
	}
	return "\x1b[" + code + "m" + word + "\x1b[m"
}
