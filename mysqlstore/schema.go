package mysqlstore

import (
	"embed"
	"fmt"
	"regexp"
	"strings"
	"sync"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/sqlstore"
)

// Version is this package's version of the tables and procedures. A release with other tables or
// procedures increases it.
//
// Procedures include the version in their names, and later versions keep the earlier procedures for
// a while. So programs of two successive releases can run together: they respect each other's
// locks.
const Version = 1

//go:embed sql
var files embed.FS

// file returns the text from an SQL file.
func file(name string) string {
	text, err := files.ReadFile("sql/" + name + ".sql")
	if err != nil {
		panic(err) // the file is built into the program
	}
	return string(text)
}

// SQL returns the statements that change the tables and procedures from one version to another, for
// a migration tool. Send each statement separately: a procedure's body contains semicolons. Version
// 0 is a database without dibs, and Version is the newest. If to is less than from, the statements
// undo the versions in between. If to is 0, they remove all tables with their leases. If a version
// does not exist, the error matches driver.ErrInvalid.
//
// A statement that changes a table waits until all transactions that use the table end. Meanwhile
// new requests for locks wait behind the statement. So set lock_wait_timeout, and repeat a
// statement that exceeds it. Migrate sets this limit and repeats by itself.
func SQL(prefix string, from, to int) (statements []string, err error) {
	return sqlstore.Migration(from, to, Version,
		func(version int) []string { return up(prefix, version) },
		func(version int) []string { return down(prefix, version) })
}

// up returns the statements to create a version.
func up(prefix string, version int) (all []string) {
	for text := range strings.SplitSeq(file(fmt.Sprintf("v%d/tables", version)), ";\n") {
		if text = strings.TrimSpace(text); text != "" {
			all = append(all, with(prefix, version, text))
		}
	}
	for text := range strings.SplitSeq(file(fmt.Sprintf("v%d/procedures", version)), "\nEND;\n") {
		if text = strings.TrimSpace(text); text != "" {
			all = append(all, with(prefix, version, text+"\nEND"))
		}
	}
	return append(all, with(prefix, version, fmt.Sprintf("INSERT IGNORE INTO dibs_versions (version) VALUES (%d)", version)))
}

// down returns the statements to remove a version.
func down(prefix string, version int) (all []string) {
	all = append(all, with(prefix, version, fmt.Sprintf("DELETE FROM dibs_versions WHERE version = %d", version)))
	createProcedure := regexp.MustCompile(`CREATE PROCEDURE (dibs_\w+\()`)
	for _, m := range createProcedure.FindAllStringSubmatch(file(fmt.Sprintf("v%d/procedures", version)), -1) {
		all = append(all, "DROP PROCEDURE IF EXISTS "+strings.TrimSuffix(with(prefix, version, m[1]), "("))
	}
	return append(all, with(prefix, version, strings.TrimSuffix(file(fmt.Sprintf("v%d/down", version)), ";\n")))
}

var (
	calls       = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\b(dibs_\w+)\(`) })
	identifiers = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\bdibs_(\w+)`) })
	lists       = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\blist_of\((\w+|\?)\)`) })
)

// overdue is the age at which a waiter's heartbeat is missing.
const overdue = driver.WaiterTTL * 11 / 20

const (
	dropAtSQL = "IF(missed = 0, heartbeat + overdue(), GREATEST(heartbeat + waiter_ttl(), missed + waiter_ttl() - overdue()))"
	isOddSQL  = "(missed = 0 AND heartbeat + overdue() <= at OR missed > at OR heartbeat > at + 1000000)"
)

const (
	nowSQL    = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))"
	listOfSQL = `JSON_TABLE($1, '$$[*]' COLUMNS (` +
		`i INT PATH '$$[0]', name ` + hexSQL + ` PATH '$$[1]', token ` + hexSQL + ` PATH '$$[2]', client ` + hexSQL + ` PATH '$$[3]', ttl BIGINT PATH '$$[4]'))`
	hexSQL = "VARCHAR(1024) CHARACTER SET ASCII" // hexadecimal digits, whatever the database's character set
)

// with sets the prefix for the tables and procedures in a text, adds the version to the procedures'
// names, and replaces the placeholders for expressions.
func with(prefix string, version int, text string) string {
	text = calls().ReplaceAllString(text, fmt.Sprintf("${1}_v%d(", version))
	text = strings.ReplaceAll(text, "now_us()", nowSQL)
	text = strings.ReplaceAll(text, "drop_at()", dropAtSQL)
	text = strings.ReplaceAll(text, "is_odd()", isOddSQL)
	text = strings.ReplaceAll(text, "overdue()", fmt.Sprint(overdue.Microseconds()))
	text = strings.ReplaceAll(text, "waiter_ttl()", fmt.Sprint(driver.WaiterTTL.Microseconds()))
	text = strings.ReplaceAll(text, "max_wanted()", fmt.Sprint(driver.MaxWanted))
	text = lists().ReplaceAllString(text, listOfSQL)
	quoted := "`" + strings.ReplaceAll(strings.ReplaceAll(prefix, "`", "``"), "$", "$$") + "$1`"
	return identifiers().ReplaceAllString(text, quoted)
}

const hasGuardSQL = "SELECT COUNT(*) > 0 FROM dibs_guards WHERE name = UNHEX(?) AND token = UNHEX(?) AND fence <= ?"

const fenceOfSQL = `SELECT fence FROM (
  SELECT fence, reserved FROM dibs_names WHERE name = UNHEX(?) AND token = UNHEX(?)
  UNION ALL SELECT fence, reserved FROM dibs_holders WHERE name = UNHEX(?) AND token = UNHEX(?)
) AS h ORDER BY reserved LIMIT 1`

// statements are the texts that only this store sends.
type statements struct {
	acquire, release, extend, guard, releaseIn, hasGuard, messages, deleteMessages string
}

func statementsOf(prefix string, version int) (statements, sqlstore.Statements) {
	with := func(text string) string { return with(prefix, version, text) }
	own := statements{
		acquire: with("CALL dibs_acquire(?, ?, ?, ?, ?, ?, ?, ?, ?)"), release: with("CALL dibs_release(?, ?, ?, ?, ?)"),
		extend: with("CALL dibs_extend(?)"), guard: with("CALL dibs_guard(UNHEX(?), UNHEX(?), ?)"),
		releaseIn: with("CALL dibs_release_in(UNHEX(?), UNHEX(?), ?, ?, ?)"), hasGuard: with(hasGuardSQL),
		messages:       with("SELECT id, message FROM dibs_messages WHERE client = ? ORDER BY id LIMIT 1000"),
		deleteMessages: with("DELETE FROM dibs_messages WHERE id IN "),
	}
	return own, sqlstore.Statements{
		Resize: with("CALL dibs_resize(?, ?, ?, ?, ?, ?, ?)"), Cancel: with("CALL dibs_cancel(?, ?, ?)"),
		Revoke: with("CALL dibs_revoke(?, ?, ?, ?)"), Wanted: with("CALL dibs_wanted(?, ?, ?, ?)"),
		ReserveFences: with("CALL dibs_reserve_fences(?, ?, ?, ?, ?)"),
		FenceOf:       with(fenceOfSQL), Inspect: with(file("inspect")), List: with(file("list")),
		RemoveUnused: with("CALL dibs_remove_unused(?, now_us() - ?)"),
		Given:        with("SELECT COUNT(*) > 0 FROM dibs_messages WHERE client = ?"),
	}
}
