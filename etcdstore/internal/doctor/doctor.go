// Package doctor checks whether an etcd cluster is suitable for locks.
package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dibslock/dibs/checkup"
	"github.com/dibslock/dibs/driver"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// A Target is a store, and how it uses its cluster.
type Target struct {
	Store  driver.Store
	Client *clientv3.Client
	Prefix string        // of the store's keys
	MinTTL time.Duration // the store's shortest TTL
}

// limits are the values from which a finding applies.
type limits struct {
	slow time.Duration // for a write
	many int64         // revisions without a compaction
}

// Examine examines the cluster of a store: see checkup.Examine.
func Examine(ctx context.Context, target Target) (checkup.Findings, error) {
	return examine(ctx, target, limits{slow: target.MinTTL / 20, many: 1_000_000})
}

func examine(ctx context.Context, target Target, l limits) (checkup.Findings, error) {
	return checkup.Collect(ctx, func(ctx context.Context, r *checkup.Report) error {
		e := &examination{Server: checkup.Server{Report: r, Ctx: ctx}, target: target, limits: l}
		e.readStatuses()
		if len(e.members) == 0 {
			e.checkLogin()
			return nil // without any reply, Collect reports that no member was reached
		}
		e.Run(
			checkup.Check{Name: "members", Run: e.checkMembers},
			checkup.Check{Name: "leader", Run: e.checkLeader},
			checkup.Check{Name: "cluster", Run: e.checkCluster},
			checkup.Check{Name: "rights", Run: e.checkRights},
			checkup.Check{Name: "compaction", Run: e.checkCompaction},
			checkup.Check{Name: "latency", Run: e.checkLatency},
			checkup.Check{Name: "ttl", Run: e.checkTTL},
			checkup.Check{Name: "lock", Run: e.checkLocking},
		)
		return nil
	})
}

const noLocks = "nothing can be locked"

// An examination runs the checks once, and stores their findings about the cluster.
type examination struct {
	checkup.Server
	limits

	target   Target
	members  []member      // those that replied
	silent   []string      // the other endpoints
	login    error         // why members rejected the user
	unusable bool          // a finding already says that no lock can be acquired
	shortest time.Duration // the shortest lease that etcd grants; zero: unknown
}

// key returns doctor's own key. No lock has such a key.
func (e *examination) key() string { return e.target.Prefix + "/doctor" }

// checkRights tests whether the user can read and write the store's keys.
func (e *examination) checkRights() {
	if e.unusable {
		return
	}
	_, err := e.target.Client.Get(e.Ctx, e.target.Prefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err == nil {
		_, err = e.target.Client.Delete(e.Ctx, e.key())
	}
	if isLogin(err) {
		e.login = err
		e.checkLogin()
		return
	}
	e.unusable = errors.Is(err, rpctypes.ErrPermissionDenied)
	if e.unusable {
		e.Find(checkup.Critical, "rights", fmt.Sprintf("the user cannot read and write the keys with the prefix %q", e.target.Prefix), noLocks,
			fmt.Sprintf("etcdctl role grant-permission ROLE readwrite --prefix=true %q", e.target.Prefix))
		return
	}
	e.Unchecked("rights", "the rights on the keys", err)
}

// isLogin reports whether a member rejected a user.
func isLogin(err error) bool {
	return errors.Is(err, rpctypes.ErrUserEmpty) || errors.Is(err, rpctypes.ErrAuthFailed) || errors.Is(err, rpctypes.ErrInvalidAuthToken)
}

// checkLogin reports that the members reject the user.
func (e *examination) checkLogin() {
	if e.login == nil {
		return
	}
	e.unusable = true
	e.Find(checkup.Critical, "login", fmt.Sprintf("the login failed: %v", e.login), noLocks, "set the user and the password of the client, or its certificate")
}

// checkLatency measures writes, which each wait for a majority's disks.
func (e *examination) checkLatency() {
	if e.unusable {
		return
	}
	const writes, longest = 50, 3 * time.Second
	lease, err := e.target.Client.Grant(e.Ctx, int64(longestTrace/time.Second))
	if e.Unchecked("latency", "how long a write takes", err) {
		return
	}
	defer e.revoke(lease.ID)
	var took []time.Duration
	for begin := time.Now(); len(took) < writes && time.Since(begin) < longest; {
		sent := time.Now()
		_, err := e.target.Client.Put(e.Ctx, e.key(), "", clientv3.WithLease(lease.ID))
		if e.Unchecked("latency", "how long a write takes", err) {
			return
		}
		took = append(took, time.Since(sent))
	}
	slices.Sort(took)
	half, most := took[len(took)/2], took[(len(took)*99-1)/100]
	e.AddAll(checkup.If(most >= e.slow, checkup.Warning, "latency",
		fmt.Sprintf("a write takes %v at the median and %v at the 99th percentile of %d", half.Round(time.Microsecond), most.Round(time.Microsecond), len(took)),
		fmt.Sprintf("each acquire and each release takes as long; short TTLs are lost in a pause of %v, and the leader changes often", e.target.MinTTL/3),
		"use local SSDs without other writers, and check etcd_disk_wal_fsync_duration_seconds and etcd_network_peer_round_trip_time_seconds of each member"))
}

// longestTrace is how long doctor's key lives after a crash of doctor.
const longestTrace = time.Minute

// revoke ends a lease, even after the examination's end.
func (e *examination) revoke(id clientv3.LeaseID) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(e.Ctx), time.Second)
	defer cancel()
	_, _ = e.target.Client.Revoke(ctx, id) // otherwise it ends after longestTrace
}

// checkTTL finds the shortest lease that etcd grants: one and a half election timeouts.
func (e *examination) checkTTL() {
	if e.unusable {
		return
	}
	lease, err := e.target.Client.Grant(e.Ctx, 1)
	if e.Unchecked("ttl", "the shortest TTL", err) {
		return
	}
	e.revoke(lease.ID)
	e.shortest = time.Duration(lease.TTL) * time.Second
	e.AddAll(checkup.If(e.shortest > e.target.MinTTL, checkup.Warning, "ttl", fmt.Sprintf("the shortest lease of etcd is %v, because of its election timeout", e.shortest),
		fmt.Sprintf("a TTL below %v is refused; after a crash a lock becomes free later", e.shortest), "reduce --election-timeout on all members, if their network is fast"))
}

// checkCompaction reports revisions that are never removed. etcd does not report its settings, but
// it rejects a read at a revision that was compacted.
func (e *examination) checkCompaction() {
	if e.unusable {
		return
	}
	now, err := e.target.Client.Get(e.Ctx, e.key(), clientv3.WithCountOnly())
	if e.Unchecked("compaction", "the last compaction", err) || now.Header.Revision <= e.many {
		return
	}
	_, err = e.target.Client.Get(e.Ctx, e.key(), clientv3.WithCountOnly(), clientv3.WithRev(now.Header.Revision-e.many))
	if errors.Is(err, rpctypes.ErrCompacted) || e.Unchecked("compaction", "the last compaction", err) {
		return
	}
	e.Find(checkup.Warning, "compaction", fmt.Sprintf("the last %d revisions are not compacted", e.many),
		"the database grows until its quota, and then nothing can be locked; requests become slower", "etcd --auto-compaction-retention=1h on all members")
}

// checkLocking tests whether locks work. The other findings only suggest it.
func (e *examination) checkLocking() {
	// The trial's TTL is driver.WaiterTTL.
	if e.unusable || e.shortest > driver.WaiterTTL || e.Ctx.Err() != nil {
		return
	}
	const remedy = "let the client reach a member that has a leader, without a proxy that ends streams"
	result := checkup.Trial{Store: e.target.Store, Watch: e.target.Store.Watch}.Run(e.Ctx)
	if e.Ctx.Err() != nil {
		return
	}
	e.AddFirst(
		result.FailedLock(),
		checkup.If(result.Listen != nil, checkup.Warning, "notifications", fmt.Sprintf("a watch failed: %v", result.Listen), checkup.Late, remedy),
		result.FailedGrant(remedy),
	)
}
