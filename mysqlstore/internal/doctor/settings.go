package doctor

import (
	"cmp"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/dibslock/dibs/checkup"
	"github.com/dibslock/dibs/mysqlstore/internal/session"
	"github.com/go-sql-driver/mysql"
)

// facts contains the server's data about itself.
type facts struct {
	version string // 10.11.6-MariaDB, or 8.0.36
	user    string
}

func (e *examination) readFacts() {
	e.Start = e.readTime()
	err := e.queryRow("SELECT VERSION(), CURRENT_USER()").Scan(&e.facts.version, &e.facts.user)
	if e.Unchecked("facts", "version and role", err) {
		return
	}
	e.Settings, err = e.pairs("SHOW VARIABLES")
	e.Unchecked("settings", "settings of the server", err)
}

// account returns the user as a GRANT names it.
func (f facts) account() string {
	at := strings.LastIndex(f.user, "@")
	if at < 0 {
		return "this user"
	}
	return "'" + f.user[:at] + "'@'" + f.user[at+1:] + "'"
}

func (f facts) mariaDB() bool { return strings.Contains(f.version, "MariaDB") }

// number returns 1006 for version 10.6.
func (f facts) number() int {
	parts := strings.FieldsFunc(strings.TrimPrefix(f.version, "5.5.5-"), func(r rune) bool { return r < '0' || r > '9' })
	if len(parts) < 2 {
		return 0
	}
	major, _ := strconv.Atoi(parts[0])
	minor, _ := strconv.Atoi(parts[1])
	return 100*major + minor
}

func (e *examination) checkServer() {
	f := e.facts
	name, least, text := "MySQL", 800, "8.0"
	if f.mariaDB() {
		name, least, text = "MariaDB", 1006, "10.6"
	}
	other := false
	for _, product := range []string{"TiDB", "Vitess", "OceanBase", "PolarDB", "SingleStore"} {
		other = other || strings.Contains(f.version, product)
	}
	e.AddAll(
		checkup.If(other, checkup.Warning, "server", fmt.Sprintf("it is not MariaDB or MySQL: %.60s", f.version),
			"another server may have other row locks and no procedures", "run package storetest against it"),
		checkup.If(f.version != "" && !other && f.number() < least, checkup.Critical, "version", fmt.Sprintf("%s %s", name, f.version),
			"it has no SKIP LOCKED or no JSON_TABLE: nothing can be locked", fmt.Sprintf("upgrade to %s %s or later", name, text)),
	)
}

func (e *examination) checkRole() {
	readOnly := e.Is("read_only", "ON", "1") || e.Is("super_read_only", "ON", "1")
	session := e.Is("tx_read_only", "ON", "1") || e.Is("transaction_read_only", "ON", "1")
	e.Unusable = e.Unusable || session
	const refused = "each acquire and each renewal is refused"
	e.AddFirst(
		checkup.If(readOnly, checkup.Critical, "role", "the server is read-only, as a replica is", refused+", unless this user may write there",
			"connect to the primary"),
		checkup.If(session, checkup.Critical, "role", "transactions are read-only by default", refused, "SET GLOBAL transaction_read_only = OFF"),
	)
}

// checkSettings reports session settings with which a store refuses to work.
func (e *examination) checkSettings() {
	problems, err := session.Problems(e.queryRow)
	if e.Unchecked("session", "settings of the session", err) {
		return
	}
	e.Unusable = e.Unusable || len(problems) > 0
	for i, setting := range session.Settings {
		problem, found := problems[i]
		e.AddAll(checkup.If(found, checkup.Critical, "session", problem, setting.Effect+": dibs refuses to work", setting.Advice()))
	}
}

func (e *examination) checkDurability() {
	const lost = "a second client may acquire the lock of a live holder"
	binlog := e.Is("log_bin", "ON", "1")
	flush := e.Settings["innodb_flush_log_at_trx_commit"]
	e.Unusable = e.Unusable || binlog && e.Is("binlog_format", "STATEMENT")
	e.AddAll(
		checkup.If(flush == "0", checkup.Critical, "flush", "innodb_flush_log_at_trx_commit is 0",
			"a crash of the server forgets the leases of the last second: "+lost, "SET GLOBAL innodb_flush_log_at_trx_commit = 1"),
		checkup.If(flush == "2" || flush == "3", checkup.Warning, "flush", "innodb_flush_log_at_trx_commit is "+flush,
			"if the machine stops, the leases of the last second are forgotten: "+lost, "SET GLOBAL innodb_flush_log_at_trx_commit = 1"),
		checkup.If(e.Is("innodb_doublewrite", "OFF", "0"), checkup.Warning, "doublewrite", "innodb_doublewrite is off",
			"if the machine stops during a write, the tables may be damaged", "innodb_doublewrite = ON in the configuration"),
		checkup.If(binlog && e.Is("binlog_format", "STATEMENT"), checkup.Critical, "binlog", "binlog_format is STATEMENT",
			"the server refuses changes under read committed: nothing can be locked", "SET GLOBAL binlog_format = MIXED"),
		checkup.If(binlog && !e.Is("sync_binlog", "1"), checkup.Warning, "sync-binlog", "sync_binlog is "+cmp.Or(e.Settings["sync_binlog"], "unknown"),
			"if the machine stops, replicas may have other leases than the primary", "SET GLOBAL sync_binlog = 1"),
	)
}

// checkReplicas reports possible losses in a failover.
func (e *examination) checkReplicas() {
	var replicas int
	err := e.queryRow("SELECT COUNT(*) FROM information_schema.processlist WHERE command LIKE 'Binlog Dump%'").Scan(&replicas)
	if e.Unchecked("failover", "what a failover loses", err) {
		return
	}
	waits := e.Is("rpl_semi_sync_master_enabled", "ON", "1") || e.Is("rpl_semi_sync_source_enabled", "ON", "1")
	early := e.Is("rpl_semi_sync_master_wait_point", "AFTER_COMMIT") || e.Is("rpl_semi_sync_source_wait_point", "AFTER_COMMIT")
	safe := waits && !early || e.Is("log_bin", "OFF", "0") // without a binary log there are no replicas
	const forgets, guarded = "a failover may forget the last leases, and a second client acquires them", "; or write only in guarded transactions"
	e.AddFirst(
		checkup.If(replicas > 0 && !waits, checkup.Warning, "failover", fmt.Sprintf("replicas: %d; replication is asynchronous", replicas),
			forgets, "turn semi-synchronous replication on, with the wait point AFTER_SYNC"+guarded),
		checkup.If(replicas > 0 && early, checkup.Warning, "failover", "semi-synchronous replication has the wait point AFTER_COMMIT",
			forgets, "SET GLOBAL rpl_semi_sync_master_wait_point = AFTER_SYNC"+guarded),
		checkup.If(replicas == 0 && !safe && !e.seesReplicas(), checkup.Unchecked, "failover",
			fmt.Sprintf("user %s lacks the right PROCESS, without which the server shows no replicas", e.facts.user), "not checked: what a failover loses",
			fmt.Sprintf("GRANT PROCESS ON *.* TO %s, or run the check as an administrator", e.facts.account())),
	)
}

// seesReplicas reports whether the user has the right PROCESS, itself or from a role: otherwise the
// server refuses this statement.
func (e *examination) seesReplicas() bool {
	_, err := e.target.DB.ExecContext(e.Ctx, "SHOW ENGINE INNODB STATUS")
	var server *mysql.MySQLError
	return !errors.As(err, &server)
}

// checkProxy looks for a proxy sending reads to another server: notifications are read late there.
func (e *examination) checkProxy() {
	read, inside, err := e.servers()
	if e.Unchecked("proxy", "whether a proxy sends reads to a replica", err) {
		return
	}
	e.AddAll(checkup.If(read != inside, checkup.Warning, "proxy", "a proxy sends reads to another server than transactions",
		"waiters learn late that they were served, and dibs ls shows an older state", "send the reads of this user to the primary"))
}

// servers returns the server reached by a read, and the server inside a transaction.
func (e *examination) servers() (read, inside string, err error) {
	const identity = "SELECT CONCAT(@@server_id, ' ', @@hostname, ' ', @@port)"
	if err := e.queryRow(identity).Scan(&read); err != nil {
		return "", "", err
	}
	tx, err := e.target.DB.BeginTx(e.Ctx, &sql.TxOptions{})
	if err != nil {
		return "", "", err
	}
	defer func() { _ = tx.Rollback() }() // it changed nothing
	err = tx.QueryRowContext(e.Ctx, identity).Scan(&inside)
	return read, inside, err
}

// checkSessions reports how long a process stopped in a guarded transaction keeps its names.
func (e *examination) checkSessions() {
	const hour = 3600
	wait, _ := strconv.Atoi(e.Settings["wait_timeout"])
	const keeps, mostly = "a process that is stopped in a guarded transaction keeps its names for as long as it is connected", "1 minute is enough for most programs"
	e.AddFirst(
		checkup.If(e.Is("idle_transaction_timeout", "0") && e.Is("idle_write_transaction_timeout", "0"), checkup.Warning, "idle-in-transaction",
			"idle_transaction_timeout is 0", keeps, "SET GLOBAL idle_transaction_timeout = 60: "+mostly),
		checkup.If(!e.facts.mariaDB() && wait >= hour, checkup.Warning, "idle-in-transaction", fmt.Sprintf("wait_timeout is %d s", wait),
			keeps, "SET GLOBAL wait_timeout = 300, and SetConnMaxIdleTime of the sql.DB to less"),
	)
}

// checkLoad reports causes of refused connections.
func (e *examination) checkLoad() {
	status, err := e.pairs("SHOW GLOBAL STATUS LIKE 'Threads_connected'")
	if e.Unchecked("connections", "the number of connections", err) {
		return
	}
	used, _ := strconv.Atoi(status["Threads_connected"])
	most, _ := strconv.Atoi(e.Settings["max_connections"])
	limit := e.target.DB.Stats().MaxOpenConnections
	e.AddAll(checkup.If(limit == 1, checkup.Warning, "pool", "MaxOpenConns of the sql.DB is 1",
		"while a transaction of the program has the connection, no lease is renewed: one that is longer than the TTL costs all leases",
		"SetMaxOpenConns(2) or more"))
	e.CheckConnections(used, most, "set SetMaxOpenConns of the sql.DB, or increase max_connections")
}
