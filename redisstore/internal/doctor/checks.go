package doctor

import (
	"cmp"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dibslock/dibs/checkup"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/redisstore/internal/wire"
	"github.com/dibslock/dibs/redisstore/redisconn"
)

// configSet returns a remedy: to change a setting.
func configSet(setting string) string {
	return fmt.Sprintf("CONFIG SET %s; CONFIG REWRITE keeps it", setting)
}

func (e *nodeCheck) checkRole() {
	role, known := e.info("role")
	master := net.JoinHostPort(e.facts["master_host"], e.facts["master_port"])
	e.AddFirst(
		checkup.If(e.facts["redis_mode"] == "sentinel", checkup.Critical, "role", "it is a Sentinel, not a data server",
			"nothing can be locked", "configure the client for Sentinel, with the Sentinels' addresses and the name of the master"),
		checkup.If(role == "slave" && e.facts["slave_read_only"] == "0", checkup.Critical, "role", "it is a replica of "+master+" that accepts writes",
			"a lock that is acquired here excludes no client of the master, and is lost when the replica synchronizes",
			"connect to the master, directly or through Sentinel; and here: "+configSet("replica-read-only yes")),
		checkup.If(role == "slave", checkup.Critical, "role", "it is a replica, of "+master,
			"each acquire and release is refused",
			"connect to the master, directly or through Sentinel, so that the client follows a failover"),
		checkup.If(known && role != "master", checkup.Critical, "role", fmt.Sprintf("its role is %q", role), // KeyDB's active replicas
			"if several servers accept writes for a name, each of them grants it",
			"use a server that is the only master"),
	)
}

func (e *nodeCheck) checkVersion() {
	others := []string{"dragonfly_version", "garnet_version", "kvrocks_version", "rlec_version", "mvcc_depth"}
	other := slices.IndexFunc(others, func(field string) bool { return e.facts[field] != "" })
	text := e.facts["redis_version"]
	version := make([]int, 2)
	if _, err := fmt.Sscanf(text, "%d.%d", &version[0], &version[1]); err != nil {
		e.markMissing("INFO", "redis_version")
		return
	}
	e.AddAll(checkup.If(other >= 0, checkup.Warning, "server", "it is neither Redis nor Valkey, though it reports to be Redis "+text,
		"dibs is tested with these two; another server may have other guarantees for scripts and expiry",
		"run package storetest against it, and read its documentation on atomic scripts"))
	e.AddFirst(
		checkup.If(version[0] < 5, checkup.Critical, "version", "Redis "+text,
			"a script cannot both read the time and write: each acquire fails", "upgrade to Redis 6.2 or later"),
		checkup.If(slices.Compare(version, []int{6, 2}) < 0, checkup.Warning, "version", "Redis "+text,
			"dibs is tested with 6.2 and later; each grant first tries SET with GET, which fails here",
			"upgrade to Redis 6.2 or later"),
	)
}

func (e *nodeCheck) checkMemory() {
	most, ok1 := e.infoNumber("maxmemory")
	policy, ok2 := e.info("maxmemory_policy")
	used, ok3 := e.infoNumber("used_memory")
	if !ok1 || !ok2 || !ok3 {
		return
	}
	used = max(used-e.optionalNumber("mem_not_counted_for_evict"), 0)
	share := fmt.Sprintf("%s of maxmemory %s in use", size(used), size(most))
	evicts, drops := policy != "noeviction", "held locks, queues and fence high-water marks"
	if strings.HasPrefix(policy, "volatile-") {
		drops = "held locks, queues and metadata, since these have a TTL"
	}
	keep := configSet("maxmemory-policy noeviction") + "; or use a separate server for locks"
	const more = "free memory, or CONFIG SET maxmemory to more; or use a separate server for locks"
	e.AddFirst(
		checkup.If(evicts && most == 0, checkup.Note, "eviction", fmt.Sprintf("maxmemory-policy is %s, maxmemory 0", policy),
			"nothing is evicted while maxmemory is not set; otherwise the server may evict "+drops,
			keep),
		checkup.If(evicts, checkup.Critical, "eviction", fmt.Sprintf("maxmemory-policy is %s; %s; evicted keys: %d", policy, share, e.optionalNumber("evicted_keys")),
			"when memory is full the server evicts "+drops+"; a second client acquires the lock, and the first holder detects that at its next renewal",
			keep),
		checkup.If(most > 0 && used >= most, checkup.Critical, "memory", share,
			"each acquire and each renewal is refused with OOM: leases are lost", more),
		checkup.If(most > 0 && used >= most-most/10, checkup.Warning, "memory", share,
			"when memory is full, each acquire and each renewal is refused with OOM: leases are lost", more),
	)
}

func size(n int64) string {
	const mebi = 1 << 20
	return fmt.Sprintf("%.1f MiB", float64(n)/mebi)
}

func (e *nodeCheck) checkPersistence() {
	const disk = "free or repair the disk; the server's log has the cause"
	save, known := e.facts["save"]
	failed := e.facts["rdb_last_bgsave_status"] == "err" && (!known || save != "")
	stops := e.facts["stop-writes-on-bgsave-error"] != "no"
	e.AddAll(
		checkup.If(e.facts["loading"] == "1" || e.facts["async_loading"] == "1", checkup.Critical, "loading",
			fmt.Sprintf("it is loading its data, for another %d s by its estimate", e.optionalNumber("loading_eta_seconds")),
			"each request is refused until then; leases that expire meanwhile are lost", "wait"),
		checkup.If(e.facts["aof_last_write_status"] == "err", checkup.Critical, "disk", "the last write to the append-only file failed",
			"each acquire and each renewal is refused with MISCONF", disk),
		checkup.If(e.facts["aof_last_bgrewrite_status"] == "err", checkup.Warning, "disk", "the last rewrite of the append-only file failed",
			"the file grows until the disk is full, and then nothing can be locked", disk),
		checkup.If(failed && stops, checkup.Critical, "disk", "the last snapshot failed, and stop-writes-on-bgsave-error is on",
			"each acquire and each renewal is refused with MISCONF", disk+", then BGSAVE"),
		checkup.If(failed && !stops, checkup.Warning, "disk", "the last snapshot failed",
			"a restart without an append-only file loses locks of any age", disk),
	)
	switch aof, ok := e.infoNumber("aof_enabled"); {
	case ok && aof != 0:
		e.checkAppendOnlyFile()
	case ok:
		e.checkSnapshots()
	}
}

// checkAppendOnlyFile reports which writes the append-only file may lack after a restart.
func (e *nodeCheck) checkAppendOnlyFile() {
	fsync, _ := e.info("appendfsync")
	late, _ := e.info("no-appendfsync-on-rewrite")
	loses := func(span string) string {
		return "if the machine stops, acquires and releases of the last " + span + " are lost: a second client may acquire a lock, and its former holder detects that when its connection is back"
	}
	e.AddFirst(
		checkup.If(fsync == "always" && late == "yes", checkup.Warning, "persistence", "appendfsync is always, but no-appendfsync-on-rewrite is yes",
			loses("half a minute")+", while the file is rewritten",
			configSet("no-appendfsync-on-rewrite no")),
		checkup.If(fsync == "everysec", checkup.Note, "persistence", "the append-only file is synced every second",
			loses("second, or two where the disk is slow,"),
			configSet("appendfsync always")+"; or protect the resource with a Fence"),
		checkup.If(fsync == "no", checkup.Warning, "persistence", "the append-only file is synced when the operating system decides",
			loses("half a minute"),
			configSet("appendfsync everysec")+", or always"),
	)
}

// checkSnapshots reports which data a restart loses without an append-only file.
func (e *nodeCheck) checkSnapshots() {
	const file = "CONFIG SET appendonly yes; CONFIG SET appendfsync always; CONFIG REWRITE keeps it (everysec is faster, and may lose a second); or protect the resource with a Fence"
	save, known := e.info("save")
	replicasToo := ""
	if e.optionalNumber("connected_slaves") > 0 {
		replicasToo = "; its replicas copy the empty data set if it restarts before a failover"
	}
	e.AddFirst(
		checkup.If(known && save == "", checkup.Warning, "persistence", "nothing is written to disk: appendonly no, save empty",
			"a restart loses all locks, queues and high-water marks: a second client may acquire each lock, and its former holder detects that when its connection is back"+replicasToo,
			file),
		checkup.If(true, checkup.Warning, "persistence", fmt.Sprintf("there is no append-only file, only snapshots (save %s); changes since the last one: %d", save, e.optionalNumber("rdb_changes_since_last_save")),
			"a restart loses locks since the last snapshot, and restores released ones: a second client acquires a lock beside its holder, or a name stays locked for a former TTL",
			file),
	)
}

func (e *nodeCheck) checkReplication() {
	connected, ok := e.infoNumber("connected_slaves")
	if !ok || e.facts["role"] != "master" {
		return
	}
	for i := range connected {
		text, ok := e.info("slave" + strconv.FormatInt(i, 10))
		if !ok {
			break
		}
		e.checkReplica(text)
	}
	_, bound := e.facts["min_slaves_good_slaves"]
	good := e.optionalNumber("min_slaves_good_slaves")
	least, _ := e.infoNumber("min-replicas-to-write")
	unprotected := e.target.Replicas == 0 && connected > 0 // with WithReplicas, the smoke test covers this
	e.AddAll(
		checkup.If(bound && good < least, checkup.Critical, "min-replicas", fmt.Sprintf("min-replicas-to-write is %d; replicas in sync: %d", least, good),
			"each acquire and each renewal is refused with NOREPLICAS",
			"start the replicas, or CONFIG SET min-replicas-to-write to fewer"),
		checkup.If(unprotected, checkup.Warning, "failover", fmt.Sprintf("replicas: %d; the store waits for none of them", connected),
			"a failover loses the latest locks and renewals, and a second client acquires them",
			"use WithReplicas(1, 200*time.Millisecond), or protect the resource with a Fence"),
		checkup.If(unprotected && least == 0, checkup.Note, "split", "min-replicas-to-write is 0",
			"a master that is partitioned from its replicas continues to grant beside its successor",
			configSet("min-replicas-to-write 1")+"; or use WithReplicas, which does the same for locks"),
	)
}

// checkReplica reads ip=127.0.0.1,port=6380,state=online,offset=14,lag=1.
func (e *nodeCheck) checkReplica(text string) {
	const long = 3 // seconds: a replica reports its offset once a second
	r := wire.ParseInfo(strings.NewReplacer(",", "\n", "=", ":").Replace(text))
	addr := net.JoinHostPort(r["ip"], r["port"])
	offset, _ := strconv.ParseInt(r["offset"], 10, 64)
	lag, _ := strconv.ParseInt(r["lag"], 10, 64)
	consequence := "a failover to it loses the locks of that time, and a second client acquires them"
	if c := e.target; c.Replicas > 0 {
		consequence = fmt.Sprintf("if fewer than %d replicas answer, each acquire waits for %v and is undone, and each renewal counts as failed", c.Replicas, c.ReplicaTimeout)
	}
	const remedy = "check that it runs and that its network and disk keep up; see INFO replication on both servers"
	e.AddFirst(
		checkup.If(r["state"] != "online", checkup.Warning, "replica", fmt.Sprintf("replica %s is not online: %s", addr, r["state"]), consequence, remedy),
		checkup.If(lag >= long, checkup.Warning, "replica", fmt.Sprintf("replica %s last reported %d s ago, and is %d bytes behind", addr, lag, max(e.optionalNumber("master_repl_offset")-offset, 0)), consequence, remedy),
	)
}

func (e *nodeCheck) checkCluster() {
	enabled, ok := e.info("cluster_enabled")
	if ok && enabled != "1" || !ok && !e.target.Sharded {
		e.AddAll(checkup.If(e.refusesSlots, checkup.Warning, "hidden-cluster", "it refuses a script with keys of different slots: the address is in front of a cluster, and hides its nodes",
			"several names can be locked together only if they are in one slot; requests that are sent together are refused and sent again one by one",
			"use the option HiddenCluster (in a URL: hidden_cluster=true); or give all names one hash tag, as in Prefix(\"{locks}:\"), which puts them on one node"))
		return
	}
	maps.Copy(e.facts, wire.ParseInfo(e.text("CLUSTER", "INFO")))
	state, ok := e.facts["cluster_state"]
	if !ok {
		e.markMissing("CLUSTER INFO", "the cluster's state")
	}
	mismatch := checkup.Warning
	if e.optionalNumber("cluster_size") > 1 {
		mismatch = checkup.Critical
	}
	_, counted := e.facts["cluster_slots_assigned"]
	unassigned := redisconn.SlotCount - e.optionalNumber("cluster_slots_assigned")
	unreachable := e.optionalNumber("cluster_slots_pfail") + e.optionalNumber("cluster_slots_fail")
	addr := cmp.Or(e.node.Addr, "HOST:PORT")
	e.AddAll(
		checkup.If(!e.target.Sharded, mismatch, "hidden-cluster", "the server is a node of a cluster, and the store is configured for a single server",
			"names of other nodes are refused with MOVED, and waiters with subscriptions on other nodes are passed over",
			"use a cluster client; or HiddenCluster() if this address hides the nodes"),
		checkup.If(ok && state != "ok", checkup.Critical, "cluster", "cluster_state is "+state,
			"nothing can be locked through this node", "redis-cli --cluster check "+addr),
		checkup.If(counted && unassigned > 0, checkup.Critical, "slots", fmt.Sprintf("%d of %d slots are assigned to no node", unassigned, redisconn.SlotCount),
			"no name in them can be locked, and none at all while cluster-require-full-coverage is yes",
			"redis-cli --cluster fix "+addr),
		checkup.If(unreachable > 0, checkup.Critical, "slots", fmt.Sprintf("the masters of %d slots do not reply to the other nodes", unreachable),
			"no name in them can be locked until they are back, or a replica is promoted",
			"start them again, or CLUSTER FAILOVER TAKEOVER on a replica of each"),
		checkup.If(e.facts["role"] == "master" && e.facts["connected_slaves"] == "0", checkup.Warning, "spare", "this master has no replica",
			"if it stops, no name of its slots can be locked until it is back, and none at all while cluster-require-full-coverage is yes",
			"redis-cli --cluster add-node NEW:PORT "+addr+" --cluster-slave"),
	)
	e.checkMigration(addr)
}

func (e *nodeCheck) checkMigration(addr string) {
	nodes := e.text("CLUSTER", "NODES")
	if nodes == "" {
		e.markMissing("CLUSTER NODES", "migrating slots")
	}
	moving := slices.DeleteFunc(strings.Fields(nodes), func(field string) bool { return !strings.HasPrefix(field, "[") })
	e.AddAll(checkup.If(len(moving) > 0, checkup.Warning, "migration", fmt.Sprintf("migrating slots: %d, %.100s", len(moving), strings.Join(moving, " ")),
		"a name in them that is new, or has moved partly, is refused with TRYAGAIN until its slot arrives: dibs retries, and leases that cannot be renewed meanwhile are lost",
		"wait until the resharding ends; if none is running: redis-cli --cluster fix "+addr))
}

// checkKeys looks for keys with the prefix that never expire: nobody can lock these names. It
// checks a sample.
func (e *nodeCheck) checkKeys() {
	if e.target.Prefix == "" {
		e.Find(checkup.Note, "prefix", "the prefix is empty",
			"each string on the server makes the name unavailable that is its key; the check for keys that never expire was skipped",
			"use a Prefix, unless names are shared with another library")
		return
	}
	keys := e.sampleKeys()
	var endless []string
	e.each(keys, func(key string) redisconn.Cmd { return redisconn.Command("PTTL", key) }, func(key string, r redisconn.Reply) {
		if r.Err == nil && r.Value == int64(-1) {
			endless = append(endless, key)
		}
	})
	if len(endless) == 0 {
		return
	}
	e.Find(checkup.Warning, "endless", fmt.Sprintf("%d of the %d keys in the sample never expire, such as %.200q", len(endless), len(keys), endless[0]),
		"these names stay locked until the keys are deleted; another program created them, and may not run any more",
		fmt.Sprintf("dibs show says what each of them is, of any type. If its owner does not run any more: DEL %.200q", endless[0]))
}

// sampleKeys returns lock keys: those found in half a second, 5000 at most.
func (e *nodeCheck) sampleKeys() []string {
	const long, most = 500 * time.Millisecond, 5000
	prefix := e.target.Prefix
	var keys []string
	err := e.scan(redisconn.Quote(prefix)+"*", long, func(key string) bool {
		name, ok := strings.CutPrefix(key, prefix)
		if ok && driver.CheckName(name) == nil && wire.CheckKey(key) == nil {
			keys = append(keys, key)
		}
		return len(keys) < most
	})
	if err != nil {
		e.failed["SCAN"] = err
		e.markMissing("SCAN", "the keys")
	}
	slices.Sort(keys)
	return slices.Compact(keys) // SCAN may return a key twice
}

func (e *nodeCheck) readTime() checkup.TimeSample {
	return checkup.ReadTime(func() (time.Time, error) {
		reply := e.doOne("TIME")
		e.failed["TIME"] = reply.Err
		return parseTime(reply.Value), reply.Err
	})
}

// parseTime reads seconds and microseconds.
func parseTime(v any) (at time.Time) {
	const most = 1 << 33 // seconds, so that a Duration can hold any difference
	seconds, micro, ok := wire.ParseTime(v)
	if !ok || seconds > most || micro >= 1e6 {
		return time.Time{}
	}
	return time.Unix(int64(seconds), int64(micro)*1000)
}

func (e *nodeCheck) checkClock() {
	now := e.readTime()
	if now.Server.IsZero() || e.start.Server.IsZero() {
		e.markMissing("TIME", "the clock")
		return
	}
	e.CheckClock(e.start, now)
}
