// Package doctor checks whether a ZooKeeper ensemble is suitable for locks.
package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/dibslock/dibs/checkup"
	"github.com/dibslock/dibs/driver"
	"github.com/go-zookeeper/zk"
)

// A Target is a store, and how it uses its ensemble.
type Target struct {
	Store   driver.Store
	Servers []string
	Dial    zk.Dialer // nil: net.DialTimeout
	Logins  []Login
	ACL     []zk.ACL      // of new znodes
	Prefix  string        // the path of the znode with all locks
	Tick    time.Duration // the option Tick

	Slack func(tick time.Duration) time.Duration // by how much a session outlasts a TTL
}

// A Login is sent to a server for each new connection.
type Login struct {
	Scheme      string
	Credentials []byte
}

// Examine examines the ensemble of a store: see checkup.Examine.
func Examine(ctx context.Context, target Target) (checkup.Findings, error) {
	const slow = 100 * time.Millisecond
	return examine(ctx, target, slow)
}

// examine is Examine. A write that takes the time slow is a finding.
func examine(ctx context.Context, target Target, slow time.Duration) (checkup.Findings, error) {
	if target.Dial == nil {
		target.Dial = net.DialTimeout
	}
	target.Servers = zk.FormatServers(target.Servers) // with the default port, as the store does
	return checkup.Collect(ctx, func(ctx context.Context, r *checkup.Report) error {
		e := &examination{Server: checkup.Server{Report: r, Ctx: ctx}, target: target, slow: slow}
		e.visitServers()
		if len(e.answers()) == 0 {
			return nil // Collect reports that no server was reached
		}
		e.Run(
			checkup.Check{Name: "servers", Run: e.checkServers},
			checkup.Check{Name: "words", Run: e.checkWords},
			checkup.Check{Name: "leader", Run: e.checkLeader},
			checkup.Check{Name: "sessions", Run: e.checkSessions},
			checkup.Check{Name: "tick", Run: e.checkTick},
			checkup.Check{Name: "lock", Run: e.checkLocking},
			checkup.Check{Name: "requests", Run: e.checkRequests},
		)
		return nil
	})
}

const noLocks = "nothing can be locked"

// An examination runs the checks once, and stores their findings about the ensemble.
type examination struct {
	checkup.Server

	target   Target
	slow     time.Duration
	servers  []*server
	unusable bool // a finding already says that no lock can be acquired
}

// checkLocking tests whether locks work. The other findings only suggest it.
func (e *examination) checkLocking() {
	if e.unusable {
		return
	}
	const remedy = "see the other findings, and the network between this host and the servers"
	result := checkup.Trial{Store: e.target.Store, Watch: e.target.Store.Watch}.Run(e.Ctx)
	if e.Ctx.Err() != nil {
		return
	}
	e.unusable = result.Lock != nil
	if e.unusable && (e.reportRefusal(result.Lock) || errors.Is(result.Lock, driver.ErrInvalid) && e.shortest() > driver.WaiterTTL) {
		return // the trial's TTL is driver.WaiterTTL, and a finding says that it is too short
	}
	e.AddFirst(
		result.FailedLock(),
		checkup.If(result.Listen != nil, checkup.Warning, "notifications", fmt.Sprintf("a watch failed: %v", result.Listen), checkup.Late, remedy),
		result.FailedGrant(remedy),
	)
}

// reportRefusal adds a finding if an error means that the servers reject the user.
func (e *examination) reportRefusal(err error) bool {
	switch {
	case errors.Is(err, zk.ErrNoAuth), errors.Is(err, zk.ErrInvalidACL):
		e.Find(checkup.Critical, "rights", fmt.Sprintf("the user cannot change the znode %s, or those below: %v", e.target.Prefix, err), noLocks,
			fmt.Sprintf("log in as in zkstore.Auth, and grant the rights with zkCli.sh: setAcl -R %s digest:USER:HASH:crdw", e.target.Prefix))
	case errors.Is(err, zk.ErrAuthFailed):
		e.Find(checkup.Critical, "login", fmt.Sprintf("the login failed: %v", err), noLocks, "set the scheme and the credentials in zkstore.Auth, as the servers expect them")
	default:
		return false
	}
	return true
}

// tick returns the tick that the store assumes for a server.
func (e *examination) tick(s *server) time.Duration { return cmp.Or(e.target.Tick, s.shortest/2) }

// shortest returns the shortest timeout that all servers grant, and longest the longest.
func (e *examination) shortest() (d time.Duration) {
	for _, s := range e.serving() {
		d = max(d, s.shortest)
	}
	return d
}

func (e *examination) longest() (d time.Duration) {
	for _, s := range e.serving() {
		d = min(cmp.Or(d, s.longest), s.longest)
	}
	return d
}
