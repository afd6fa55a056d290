package doctor

import (
	_ "embed"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/dibslock/dibs/checkup"
	"github.com/jackc/pgx/v5"
)

// facts contains the server's data about itself.
type facts struct {
	version string // the text from version()
	number  int    // 150004 is 15.4
	user    string
	standby bool
}

func (e *examination) readFacts() {
	e.Start = e.readTime()
	var f facts
	err := e.queryRow("SELECT version(), current_setting('server_version_num')::int, current_user::text, pg_is_in_recovery()").
		Scan(&f.version, &f.number, &f.user, &f.standby)
	if e.Unchecked("facts", "version and role", err) {
		return
	}
	e.facts, e.Settings = f, make(map[string]string)
	var name, setting string
	err = e.query([]any{&name, &setting}, func() { e.Settings[name] = setting }, "SELECT name, coalesce(setting, '') FROM pg_settings")
	e.Unchecked("settings", "settings of the server", err)
}

// alterSystem returns a remedy to change a setting.
func alterSystem(setting string) string {
	return "ALTER SYSTEM SET " + setting + "; SELECT pg_reload_conf()"
}

func (e *examination) checkServer() {
	const oldest, factor = 12, 10_000
	f := e.facts
	if f.number == 0 {
		return
	}
	others := []string{"CockroachDB", "Yugabyte", "-YB-", "Greenplum", "Redshift", "openGauss"}
	other := !strings.HasPrefix(f.version, "PostgreSQL ")
	for _, name := range others {
		other = other || strings.Contains(f.version, name)
	}
	e.AddAll(
		checkup.If(other, checkup.Warning, "server", fmt.Sprintf("it is not PostgreSQL: %.60s", f.version),
			"dibs is tested with PostgreSQL; another server may have other row locks and no LISTEN",
			"run package storetest against it"),
		checkup.If(f.number < oldest*factor, checkup.Critical, "version", fmt.Sprintf("PostgreSQL %d", f.number/factor),
			"dibs is not tested with it, and it gets no repairs", fmt.Sprintf("upgrade to PostgreSQL %d or later", oldest)),
	)
}

func (e *examination) checkRole() {
	readOnly := e.Is("default_transaction_read_only", "on") || e.Is("transaction_read_only", "on")
	e.Unusable = e.facts.standby || readOnly
	e.AddFirst(
		checkup.If(e.facts.standby, checkup.Critical, "role", "the server is a standby",
			"each acquire and each renewal is refused",
			"connect to the primary; with several hosts in the URL: target_session_attrs=read-write"),
		checkup.If(readOnly, checkup.Critical, "role", "transactions are read-only by default",
			"each acquire and each renewal is refused",
			fmt.Sprintf("ALTER ROLE %s RESET default_transaction_read_only, or the same for the database or the server", e.facts.user)),
	)
}

func (e *examination) checkDurability() {
	const lost = "a second client may acquire the lock of a live holder"
	e.AddAll(
		checkup.If(e.Is("fsync", "off"), checkup.Critical, "fsync", "fsync is off",
			"if the machine stops, locks and other data are lost or damaged: "+lost, alterSystem("fsync = on")),
		checkup.If(e.Is("full_page_writes", "off"), checkup.Critical, "full-page-writes", "full_page_writes is off",
			"if the machine stops during a write, the tables may be damaged: "+lost, alterSystem("full_page_writes = on")),
		checkup.If(e.Is("synchronous_commit", "off"), checkup.Note, "synchronous-commit", "synchronous_commit is off",
			"none for locks, because dibs sets it for its requests; a crash may lose the last transactions of the program, also guarded ones",
			"SET LOCAL synchronous_commit = on in guarded transactions"),
	)
}

// checkStandbys reports possible losses in a failover. A logical replication subscriber is not a
// standby.
func (e *examination) checkStandbys() {
	var standbys int
	err := e.queryRow(`SELECT count(*) FROM pg_stat_replication WHERE state IS DISTINCT FROM 'backup'
		AND pid NOT IN (SELECT active_pid FROM pg_replication_slots WHERE slot_type = 'logical' AND active_pid IS NOT NULL)`).Scan(&standbys)
	if e.facts.standby || e.Unchecked("standbys", "what a failover loses", err) {
		return
	}
	names := e.Settings["synchronous_standby_names"]
	local := e.Is("synchronous_commit", "local")
	e.Unusable = e.Unusable || names != "" && standbys == 0 && !local
	const forgets = "a failover may forget the last leases, and a second client acquires them"
	e.AddFirst(
		checkup.If(names != "" && standbys == 0 && !local, checkup.Critical, "standbys", fmt.Sprintf("synchronous_standby_names is %q, and no standby is connected", names),
			"each commit waits for a standby: nothing can be locked", "start a standby, or "+alterSystem("synchronous_standby_names = ''")),
		checkup.If(standbys > 0 && names == "", checkup.Warning, "failover", fmt.Sprintf("standbys: %d; synchronous_standby_names is empty", standbys),
			forgets, alterSystem("synchronous_standby_names = 'ANY 1 (*)'")+"; or write only in guarded transactions"),
		checkup.If(standbys > 0 && local, checkup.Warning, "failover", "synchronous_commit is local: a commit waits for no standby",
			forgets, fmt.Sprintf("ALTER ROLE %s SET synchronous_commit = on", e.facts.user)),
	)
}

// checkSessions reports this user's session settings.
func (e *examination) checkSessions() {
	isolation := e.Settings["default_transaction_isolation"]
	e.AddAll(
		checkup.If(isolation != "" && isolation != "read committed", checkup.Note, "isolation", fmt.Sprintf("default_transaction_isolation is %s", isolation),
			"each request of dibs takes more round trips, because it begins a transaction that is read committed",
			fmt.Sprintf("ALTER ROLE %s SET default_transaction_isolation = 'read committed'", e.facts.user)),
		checkup.If(e.Is("idle_in_transaction_session_timeout", "0"), checkup.Warning, "idle-in-transaction", "idle_in_transaction_session_timeout is 0",
			"a process that is stopped in a guarded transaction keeps its names for as long as it is connected",
			fmt.Sprintf("ALTER ROLE %s SET idle_in_transaction_session_timeout = '1min'", e.facts.user)),
	)
}

// checkLoad reports causes of slow replies and refused connections.
func (e *examination) checkLoad() {
	e.AddAll(checkup.If(e.Is("autovacuum", "off"), checkup.Warning, "autovacuum", "autovacuum is off",
		"each request leaves an old version of a row: the tables grow, and requests become slow", alterSystem("autovacuum = on")))
	e.checkSnapshots(oldSnapshot)
	var used, most int
	err := e.queryRow(`SELECT coalesce(sum(numbackends), 0)::int,
		current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int FROM pg_stat_database`).Scan(&used, &most)
	if e.Unchecked("connections", "the number of connections", err) {
		return
	}
	e.CheckConnections(used, most, "use smaller pools or a pooler, or increase max_connections")
}

const oldSnapshot = 30 * time.Second

//go:embed snapshots.sql
var snapshotsSQL string

// checkSnapshots reports snapshots that keep old row versions. A hot name leaves an old version at
// each request, and its requests become slow if the server cannot remove them.
func (e *examination) checkSnapshots(old time.Duration) {
	var seconds int
	var what string
	err := e.queryRow(snapshotsSQL).Scan(&seconds, &what)
	if errors.Is(err, pgx.ErrNoRows) || e.Unchecked("snapshots", "the oldest snapshot", err) {
		return
	}
	e.AddAll(checkup.If(seconds >= int(old.Seconds()), checkup.Warning, "snapshots", fmt.Sprintf("%s has a snapshot of %d s", what, seconds),
		"old versions of rows are kept: a name that is locked all the time becomes several times slower",
		"end the transaction; set idle_in_transaction_session_timeout and statement_timeout; run long reports on a standby without hot_standby_feedback"))
}
