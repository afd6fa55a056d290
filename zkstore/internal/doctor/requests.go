package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dibslock/dibs/checkup"
	"github.com/go-zookeeper/zk"
)

// checkRequests runs the checks that need a session.
func (e *examination) checkRequests() {
	if len(e.serving()) == 0 {
		return
	}
	const long = 10 * time.Second // a session without any pause
	// The library's own list would resolve the names, which TLS compares.
	conn, _, err := zk.Connect(e.target.Servers, min(e.longest(), long), zk.WithDialer(e.target.Dial), zk.WithHostProvider(&single{addr: e.serving()[0].addr}),
		zk.WithLogger(discard{}), zk.WithLogInfo(false))
	if e.Unchecked("requests", "the members, the rights and the latency", err) {
		return
	}
	defer conn.Close()
	defer context.AfterFunc(e.Ctx, conn.Close)() // ends all requests
	for _, l := range e.target.Logins {
		if err := conn.AddAuth(l.Scheme, l.Credentials); err != nil {
			e.unusable = e.reportRefusal(err) || e.unusable
			return
		}
	}
	e.checkMembers(conn)
	if !e.unusable {
		e.checkACL(conn)
		e.checkLatency(conn)
	}
}

// A single offers a single server to the library, which makes a pause after a failed attempt.
type single struct {
	addr  string
	tried bool
}

func (*single) Init([]string) error { return nil }
func (*single) Len() int            { return 1 }
func (*single) Connected()          {}

func (s *single) Next() (server string, pause bool) {
	pause, s.tried = s.tried, true
	return s.addr, pause
}

// discard drops the library's log lines: failures are returned as errors.
type discard struct{}

func (discard) Printf(string, ...any) {}

// checkMembers checks how many servers may fail.
func (e *examination) checkMembers(conn *zk.Conn) {
	text, _, err := conn.Get("/zookeeper/config")
	if e.Unchecked("members", "the servers of the ensemble", err) {
		return
	}
	voters := max(1, strings.Count(string(text), ":participant")) // a server alone has no such lines
	e.AddFirst(
		checkup.If(voters == 1, checkup.Warning, "members", "the ensemble has one server",
			"while it is down, nothing can be locked, and leases are lost; a disk that fails loses all locks", "add servers: three or five in all"),
		checkup.If(voters == 2, checkup.Warning, "members", "the ensemble has two servers",
			"while either of them is down, nothing can be locked, and leases are lost", "add a third server"),
		checkup.If(len(e.servers) == 1, checkup.Note, "endpoints", fmt.Sprintf("the store knows one of %d servers", voters),
			"if that server fails, so do all requests, unless the address is that of a load balancer", "give the store the addresses of all servers"),
	)
	for _, s := range e.serving() {
		text, leads := s.field("mntr", "zk_synced_followers")
		synced, err := strconv.Atoi(text)
		e.at(s, checkup.If(leads && err == nil && synced < voters-1, checkup.Warning, "followers",
			fmt.Sprintf("%d of %d followers are in sync with this leader", synced, voters-1), "if others fail too, nothing can be locked", "start the other servers, and check the network between them"))
	}
}

// checkACL reports znodes that everybody can change.
func (e *examination) checkACL(conn *zk.Conn) {
	const change = zk.PermWrite | zk.PermCreate | zk.PermDelete | zk.PermAdmin
	all, _, err := conn.GetACL(e.target.Prefix)
	if errors.Is(err, zk.ErrNoNode) || e.Unchecked("acl", "the rights of other users", err) {
		return
	}
	open := slices.ContainsFunc(all, func(a zk.ACL) bool { return a.Scheme == "world" && a.Perms&change != 0 })
	e.AddAll(checkup.If(open, checkup.Note, "acl", fmt.Sprintf("everybody can change the znodes below %s", e.target.Prefix),
		"each client of the servers can end locks of others", "log in as in zkstore.Auth, with a new prefix; or zkCli.sh: setAcl -R"))
}

// checkLatency measures writes, which each wait for a majority's disks.
func (e *examination) checkLatency(conn *zk.Conn) {
	const writes, longest = 50, 3 * time.Second
	// No name has such a znode. It ends with the session.
	path, err := conn.Create(e.target.Prefix+"/%doctor-", nil, zk.FlagEphemeral|zk.FlagSequence, e.target.ACL)
	if err != nil {
		if e.unusable = e.reportRefusal(err); !e.unusable {
			e.Unchecked("latency", "how long a write takes", err)
		}
		return
	}
	var took []time.Duration
	for begin := time.Now(); len(took) < writes && time.Since(begin) < longest; {
		sent := time.Now()
		_, err := conn.Set(path, nil, -1)
		if e.Unchecked("latency", "how long a write takes", err) {
			return
		}
		took = append(took, time.Since(sent))
	}
	slices.Sort(took)
	half, most := took[len(took)/2], took[(len(took)*99-1)/100]
	e.AddAll(checkup.If(most >= e.slow, checkup.Warning, "latency",
		fmt.Sprintf("a write takes %v at the median and %v at the 99th percentile of %d", half.Round(time.Microsecond), most.Round(time.Microsecond), len(took)),
		"each acquire and each release takes as long; short TTLs are lost in a pause, and the leader changes often",
		"use local SSDs without other writers for dataLogDir, and look for slow syncs in the log of each server"))
	_ = conn.Delete(path, -1) // otherwise it ends with the session
}
