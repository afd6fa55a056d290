package doctor

import (
	_ "embed"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/checkup"
	"github.com/jackc/pgx/v5"
)

// facts are what the server says about itself.
type facts struct {
	version  string // the text of version()
	number   int    // 150004 is 15.4
	user     string
	standby  bool
	settings map[string]string // of this session
}

func (e *examination) readFacts() {
	e.start = e.readTime()
	f := facts{settings: make(map[string]string)}
	err := e.queryRow("SELECT version(), current_setting('server_version_num')::int, current_user::text, pg_is_in_recovery()").
		Scan(&f.version, &f.number, &f.user, &f.standby)
	if e.Unchecked("facts", "version and role", err) {
		return
	}
	rows, err := e.query("SELECT name, coalesce(setting, '') FROM pg_settings")
	if err == nil {
		var name, setting string
		_, err = pgx.ForEachRow(rows, []any{&name, &setting}, func() error {
			f.settings[name] = setting
			return nil
		})
	}
	e.Unchecked("settings", "settings of the server", err)
	e.facts = f
}

// is reports whether a setting has a value. A setting that the server does not report has none.
func (f facts) is(name, value string) bool { return f.settings[name] == value }

// alterSystem returns a remedy that changes a setting.
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
		checkup.If(other, driver.Warning, "server", fmt.Sprintf("it is not PostgreSQL: %.60s", f.version),
			"dibs is tested with PostgreSQL; another server may have other row locks and no LISTEN",
			"run package storetest against it"),
		checkup.If(f.number < oldest*factor, driver.Critical, "version", fmt.Sprintf("PostgreSQL %d", f.number/factor),
			"dibs is not tested with it, and it gets no repairs", fmt.Sprintf("upgrade to PostgreSQL %d or later", oldest)),
	)
}

func (e *examination) checkRole() {
	readOnly := e.facts.is("default_transaction_read_only", "on") || e.facts.is("transaction_read_only", "on")
	e.unusable = e.facts.standby || readOnly
	e.AddFirst(
		checkup.If(e.facts.standby, driver.Critical, "role", "the server is a standby",
			"each acquire and each renewal is refused",
			"connect to the primary; with several hosts in the URL: target_session_attrs=read-write"),
		checkup.If(readOnly, driver.Critical, "role", "transactions are read-only by default",
			"each acquire and each renewal is refused",
			fmt.Sprintf("ALTER ROLE %s RESET default_transaction_read_only, or the same for the database or the server", e.facts.user)),
	)
}

func (e *examination) checkDurability() {
	const lost = "a second client may acquire the lock of a live holder"
	e.AddAll(
		checkup.If(e.facts.is("fsync", "off"), driver.Critical, "fsync", "fsync is off",
			"if the machine stops, locks and other data are lost or damaged: "+lost, alterSystem("fsync = on")),
		checkup.If(e.facts.is("full_page_writes", "off"), driver.Critical, "full-page-writes", "full_page_writes is off",
			"if the machine stops during a write, the tables may be damaged: "+lost, alterSystem("full_page_writes = on")),
		checkup.If(e.facts.is("synchronous_commit", "off"), driver.Note, "synchronous-commit", "synchronous_commit is off",
			"none for locks, because dibs sets it for its requests; a crash may lose the last transactions of the program, also guarded ones",
			"SET LOCAL synchronous_commit = on in guarded transactions"),
	)
}

// checkStandbys reports what a failover loses. A subscriber of logical replication is no
// standby.
func (e *examination) checkStandbys() {
	var standbys int
	err := e.queryRow(`SELECT count(*) FROM pg_stat_replication WHERE state IS DISTINCT FROM 'backup'
		AND pid NOT IN (SELECT active_pid FROM pg_replication_slots WHERE slot_type = 'logical' AND active_pid IS NOT NULL)`).Scan(&standbys)
	if e.facts.standby || e.Unchecked("standbys", "what a failover loses", err) {
		return
	}
	names := e.facts.settings["synchronous_standby_names"]
	local := e.facts.is("synchronous_commit", "local")
	e.unusable = e.unusable || names != "" && standbys == 0 && !local
	const forgets = "a failover may forget the last leases, and a second client acquires them"
	e.AddFirst(
		checkup.If(names != "" && standbys == 0 && !local, driver.Critical, "standbys", fmt.Sprintf("synchronous_standby_names is %q, and no standby is connected", names),
			"each commit waits for a standby: nothing can be locked", "start a standby, or "+alterSystem("synchronous_standby_names = ''")),
		checkup.If(standbys > 0 && names == "", driver.Warning, "failover", fmt.Sprintf("standbys: %d; synchronous_standby_names is empty", standbys),
			forgets, alterSystem("synchronous_standby_names = 'ANY 1 (*)'")+"; or write only in guarded transactions"),
		checkup.If(standbys > 0 && local, driver.Warning, "failover", "synchronous_commit is local: a commit waits for no standby",
			forgets, fmt.Sprintf("ALTER ROLE %s SET synchronous_commit = on", e.facts.user)),
	)
}

// checkSessions reports settings of the sessions of this user.
func (e *examination) checkSessions() {
	isolation := e.facts.settings["default_transaction_isolation"]
	e.AddAll(
		checkup.If(isolation != "" && isolation != "read committed", driver.Note, "isolation", fmt.Sprintf("default_transaction_isolation is %s", isolation),
			"each request of dibs takes more round trips, because it begins a transaction that is read committed",
			fmt.Sprintf("ALTER ROLE %s SET default_transaction_isolation = 'read committed'", e.facts.user)),
		checkup.If(e.facts.is("idle_in_transaction_session_timeout", "0"), driver.Warning, "idle-in-transaction", "idle_in_transaction_session_timeout is 0",
			"a process that is stopped in a guarded transaction keeps its names for as long as it is connected",
			fmt.Sprintf("ALTER ROLE %s SET idle_in_transaction_session_timeout = '1min'", e.facts.user)),
	)
}

// checkLoad reports what makes the server slow, or refuse connections.
func (e *examination) checkLoad() {
	e.AddAll(checkup.If(e.facts.is("autovacuum", "off"), driver.Warning, "autovacuum", "autovacuum is off",
		"each request leaves an old version of a row: the tables grow, and requests become slow", alterSystem("autovacuum = on")))
	e.checkSnapshots(oldSnapshot)
	var used, most int
	err := e.queryRow(`SELECT coalesce(sum(numbackends), 0)::int,
		current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int FROM pg_stat_database`).Scan(&used, &most)
	if e.Unchecked("connections", "the number of connections", err) {
		return
	}
	e.AddAll(checkup.If(10*used >= 9*most, driver.Warning, "connections", fmt.Sprintf("%d of %d connections are in use", used, most),
		"a new connection may be refused: then nothing can be locked, and leases that cannot be renewed are lost",
		"use smaller pools or a pooler, or increase max_connections"))
}

const oldSnapshot = 30 * time.Second

//go:embed snapshots.sql
var snapshotsSQL string

// checkSnapshots reports what keeps old versions of rows. A hot name leaves one at each request, and
// its requests become slow if they cannot be removed.
func (e *examination) checkSnapshots(old time.Duration) {
	var seconds int
	var what string
	err := e.queryRow(snapshotsSQL).Scan(&seconds, &what)
	if errors.Is(err, pgx.ErrNoRows) || e.Unchecked("snapshots", "the oldest snapshot", err) {
		return
	}
	e.AddAll(checkup.If(seconds >= int(old.Seconds()), driver.Warning, "snapshots", fmt.Sprintf("%s has a snapshot of %d s", what, seconds),
		"old versions of rows are kept: a name that is locked all the time becomes several times slower",
		"end the transaction; set idle_in_transaction_session_timeout and statement_timeout; run long reports on a standby without hot_standby_feedback"))
}
