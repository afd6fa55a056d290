package duetest

import (
	"strconv"
	"testing"
	"time"

	"github.com/dibslock/dibs/internal/test/childtest"
)

// Run runs a role in some processes that follow a plan on a server, and returns their record. The
// role can read its arguments with ReadArguments.
func Run(t testing.TB, role, server string, processes int, plan Plan) *Record {
	t.Helper()
	var children []*childtest.Child
	for range processes {
		children = append(children, childtest.Start(t, role, server, strconv.FormatInt(plan.First.UnixNano(), 10), plan.Interval.String()))
	}
	return Read(t, plan, children)
}

// ReadArguments returns the server's address, and the plan's first due time and interval, from a
// process's arguments.
func ReadArguments(args []string) (server string, first time.Time, interval time.Duration, err error) {
	nanos, err := strconv.ParseInt(args[1], 10, 64)
	if err != nil {
		return "", time.Time{}, 0, err
	}
	interval, err = time.ParseDuration(args[2])
	return args[0], time.Unix(0, nanos), interval, err
}

// WantEnough ends the test if fewer than half of a mode's due times are counted, because the others
// were late.
func (r *Record) WantEnough(t testing.TB, mode int, counted Tally) {
	t.Helper()
	all := r.Of(mode)
	t.Logf("FIGURE all due times: %+v, punctual: %+v, the latest request %v after its due time, %d without an answer", all, counted, r.latestOf(mode), r.refused[mode])
	if 2*counted.Sum() < all.Sum() {
		t.Fatalf("%d of %d due times were late: this host is too slow", all.Sum()-counted.Sum(), all.Sum())
	}
}
