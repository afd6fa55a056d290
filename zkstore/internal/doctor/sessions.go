package doctor

import (
	"fmt"
	"slices"
	"time"

	"github.com/dibslock/dibs/checkup"
)

// usual is the TTL of a lock without the option TTL.
const usual = 30 * time.Second

// checkSessions checks the session timeouts that the servers grant. A TTL is at least half of the
// shortest.
func (e *examination) checkSessions() {
	if e.unusable {
		return
	}
	const shortestTTL = 2 * time.Second
	shortest, longest := e.shortest(), e.longest()
	onSession := max(0, longest-e.target.Slack(e.tick(e.serving()[0])))
	e.AddAll(
		checkup.If(shortest/2 > shortestTTL, checkup.Warning, "ttl", fmt.Sprintf("the shortest session timeout is %v", shortest),
			fmt.Sprintf("a TTL below %v is refused; after a crash a lock becomes free later", shortest/2), "reduce tickTime or minSessionTimeout of all servers, if their network is fast"),
		checkup.If(onSession < usual, checkup.Note, "session", fmt.Sprintf("the longest session timeout is %v", longest),
			fmt.Sprintf("a lock with a TTL over %v is a persistent znode: each renewal is a write, and after a crash another client deletes it", onSession),
			"raise maxSessionTimeout of all servers, as far as your TTLs need it"),
	)
	differ := func(s *server) bool {
		return s.shortest != e.serving()[0].shortest || s.longest != e.serving()[0].longest
	}
	if !slices.ContainsFunc(e.serving(), differ) {
		return
	}
	for _, s := range e.serving() {
		e.at(s, checkup.If(true, checkup.Warning, "settings", fmt.Sprintf("the servers have different settings: this server grants session timeouts from %v to %v", s.shortest, s.longest),
			"a TTL is accepted or refused by chance; after a change of the server, a lease can be lost", "set the same tickTime, minSessionTimeout and maxSessionTimeout on all servers"))
	}
}

// checkTick compares the tick of each server with the tick that the store assumes. A server finds out
// up to a tick late that it has lost its leader, and the store subtracts that from each lease.
func (e *examination) checkTick() {
	for _, s := range e.serving() {
		tick, found := s.durationOf("tickTime")
		assumed := e.tick(s)
		e.at(s, checkup.If(found && tick > assumed, checkup.Critical, "tick", fmt.Sprintf("tickTime is %v, but the store assumes %v", tick, assumed),
			"a holder can be told too late that it lost a lock: two clients hold it", fmt.Sprintf("set zkstore.Tick(%v), tick=%v in a URL, or a minSessionTimeout of two ticks", tick, tick)))
	}
}
