package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dibslock/dibs/checkup"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// A member is a member's reply at an endpoint of the client.
type member struct {
	endpoint string
	*clientv3.StatusResponse
}

// readStatuses reads the statuses of all endpoints.
func (e *examination) readStatuses() {
	const soon = 3 * time.Second
	ctx, cancel := context.WithTimeout(e.Ctx, soon)
	defer cancel()
	endpoints := e.target.Client.Endpoints()
	replies, errs := make([]*clientv3.StatusResponse, len(endpoints)), make([]error, len(endpoints))
	var requests sync.WaitGroup
	for i, endpoint := range endpoints {
		requests.Go(func() { replies[i], errs[i] = e.target.Client.Status(ctx, endpoint) })
	}
	requests.Wait()
	for i, endpoint := range endpoints {
		if isLogin(errs[i]) {
			e.login = errs[i]
			e.Visited(nil)
			continue
		}
		e.Visited(errs[i])
		if errs[i] != nil {
			e.silent = append(e.silent, addressOf(endpoint))
			continue
		}
		e.members = append(e.members, member{addressOf(endpoint), replies[i]})
	}
}

// addressOf returns an endpoint without its scheme.
func addressOf(endpoint string) string {
	if _, address, ok := strings.Cut(endpoint, "://"); ok {
		return address
	}
	return endpoint
}

// at adds findings about a member. Its address is not added if the client has a single endpoint.
func (e *examination) at(m member, found ...checkup.Findings) {
	s := e.Server
	if len(e.members)+len(e.silent) > 1 {
		s.Addr = m.endpoint
	}
	s.AddAll(found...)
}

// checkMembers checks each member that replied.
func (e *examination) checkMembers() {
	for _, m := range e.members {
		e.checkVersion(m)
		e.checkAlarms(m)
		e.checkQuota(m)
		e.at(m, checkup.If(m.IsLearner, checkup.Warning, "learner", "the member is a learner",
			"it refuses most requests", "remove it from the client's endpoints until it is promoted"))
	}
	for _, endpoint := range e.silent {
		e.at(member{endpoint: endpoint}, checkup.If(true, checkup.Warning, "unreachable", "the member does not reply",
			"if others fail too, nothing can be locked", "start it, or remove it from the client's endpoints"))
	}
}

// The first versions, for each minor version, in which only the leader ends leases.
var sound = [][]int{{3, 4, 31}, {3, 5, 13}}

// isSound reports whether an old leader that resumes ends no lease early.
func isSound(text string) (ok, known bool) {
	version := make([]int, 3)
	if _, err := fmt.Sscanf(text, "%d.%d.%d", &version[0], &version[1], &version[2]); err != nil {
		return false, false
	}
	for _, first := range sound {
		if slices.Equal(version[:2], first[:2]) {
			return version[2] >= first[2], true
		}
	}
	return slices.Compare(version, sound[len(sound)-1]) > 0, true
}

func (e *examination) checkVersion(m member) {
	ok, known := isSound(m.Version)
	e.at(m,
		checkup.If(!known, checkup.Unchecked, "version", fmt.Sprintf("the version %q", m.Version), "it may be too old", "use etcd 3.5.13 or later"),
		checkup.If(known && !ok, checkup.Critical, "version", "etcd "+m.Version,
			"a leader that was stopped, or has a slow disk, frees locks early after another leader took over: two clients hold a lock; and a watch can lose a hand-off",
			"upgrade to etcd 3.5.13 or later, or to 3.4.31"))
}

func (e *examination) checkAlarms(m member) {
	const full, corrupt = "NOSPACE", "CORRUPT"
	has := func(alarm string) bool {
		return slices.ContainsFunc(m.Errors, func(text string) bool { return strings.Contains(text, alarm) })
	}
	e.unusable = e.unusable || has(full) || has(corrupt)
	e.at(m,
		checkup.If(has(full), checkup.Critical, "alarm", "the alarm NOSPACE: a database reached its quota",
			"each acquire is refused; renewals and releases work",
			"compact, defragment each member, then etcdctl alarm disarm; or raise --quota-backend-bytes"),
		checkup.If(has(corrupt), checkup.Critical, "alarm", "the alarm CORRUPT: members have different data",
			"each request is refused, because two members could grant a lock to two clients", "replace the member with the wrong data, then etcdctl alarm disarm"))
}

// checkQuota reports a database that is almost full. Before etcd 3.6, a member does not report its
// quota.
func (e *examination) checkQuota(m member) {
	const usual = 2 << 30
	quota, source := m.DbSizeQuota, "its quota"
	if quota == 0 {
		quota, source = usual, "etcd's usual quota"
	}
	remedy := "raise --quota-backend-bytes, and remove the keys of other programs"
	if 2*m.DbSizeInUse < m.DbSize {
		remedy = "etcdctl defrag on each member, one after the other"
	}
	e.at(m, checkup.If(5*m.DbSize >= 4*quota && !e.unusable, checkup.Warning, "quota",
		fmt.Sprintf("the database has %s, of which %s are in use; %s is %s", size(m.DbSize), size(m.DbSizeInUse), source, size(quota)),
		"when the database is full, each acquire is refused", remedy))
}

func size(n int64) string {
	const mebi = 1 << 20
	return fmt.Sprintf("%.1f MiB", float64(n)/mebi)
}

// checkLeader reports members without a leader.
func (e *examination) checkLeader() {
	leads := func(m member) bool { return m.Leader != 0 }
	if !slices.ContainsFunc(e.members, leads) {
		e.unusable = true
		e.Find(checkup.Critical, "leader", "no member has a leader: less than a majority of the members are connected", noLocks,
			"start the other members, and check the network between them")
		return
	}
	for _, m := range e.members {
		e.at(m, checkup.If(!leads(m), checkup.Warning, "leader", "the member has no leader, but others have",
			"a client at this member waits for each request until its time limit", "check the network between this member and the others"))
	}
}

// checkCluster checks how many members may fail.
func (e *examination) checkCluster() {
	if e.unusable {
		return
	}
	reply, err := e.target.Client.MemberList(e.Ctx)
	if e.Unchecked("members", "the members of the cluster", err) {
		return
	}
	voters := slices.DeleteFunc(slices.Clone(reply.Members), func(m *etcdserverpb.Member) bool { return m.IsLearner })
	known := slices.DeleteFunc(slices.Clone(voters), func(m *etcdserverpb.Member) bool {
		return !slices.ContainsFunc(e.members, func(have member) bool { return have.Header.MemberId == m.ID })
	})
	e.AddFirst(
		checkup.If(len(voters) == 1, checkup.Warning, "members", "the cluster has one member",
			"while it is down, nothing can be locked, and leases are lost; a disk that fails loses all locks", "add members: three or five in all"),
		checkup.If(len(voters) == 2, checkup.Warning, "members", "the cluster has two members",
			"while either of them is down, nothing can be locked, and leases are lost", "add a third member"),
		checkup.If(len(known) == 1 && len(e.silent) == 0, checkup.Note, "endpoints", fmt.Sprintf("the client knows one of %d members", len(voters)),
			"if that member fails, so do all requests, unless the address is that of a load balancer", "give the client the endpoints of all members"),
	)
}
