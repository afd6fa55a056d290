package mysqlstore

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"regexp"
	"strings"

	"github.com/dibslock/dibs/driver"
)

//go:embed sql
var files embed.FS

// file returns the text of a file with SQL.
func file(name string) string {
	text, err := files.ReadFile("sql/" + name + ".sql")
	if err != nil {
		panic(err) // it is part of the program
	}
	return string(text)
}

// SQL returns the statements that create the tables and procedures, for a tool that manages
// migrations. Send each by itself: the body of a procedure has semicolons.
func SQL(prefix string) (statements []string) {
	for text := range strings.SplitSeq(file("tables"), ";\n") {
		statements = append(statements, text)
	}
	for text := range strings.SplitSeq(file("procedures"), "\nEND;\n") {
		statements = append(statements, text+"\nEND")
	}
	all := statements[:0]
	for _, text := range statements {
		if text = strings.TrimSpace(text); text != "" && text != "END" {
			all = append(all, with(prefix, text))
		}
	}
	return all
}

// Migrate creates the tables and procedures if they do not exist. It may run in several
// processes at once. It needs the rights CREATE, CREATE ROUTINE and INSERT. The error of a prefix
// that is not valid matches driver.ErrInvalid.
func (s *Store) Migrate(ctx context.Context) error {
	if err := CheckPrefix(s.prefix); err != nil {
		return err
	}
	if err := s.use(ctx, func(conn *sql.Conn) error { return s.migrate(ctx, conn) }); err != nil {
		return unavailable("create the tables", s.prefix, err)
	}
	return nil
}

// migrateLockSQL is the name of the lock of a migration. It is a hash, because the names of
// MySQL have up to 64 characters.
const migrateLockSQL = "SHA2(LOWER(CONCAT_WS('.', DATABASE(), ?)), 256)"

func (s *Store) migrate(ctx context.Context, conn *sql.Conn) error {
	const limit = 60 // seconds
	var locked bool
	lock := s.prefix + "migrate"
	if err := conn.QueryRowContext(ctx, "SELECT COALESCE(GET_LOCK("+migrateLockSQL+", ?), 0)", lock, limit).Scan(&locked); err != nil {
		return err
	}
	if !locked {
		return fmt.Errorf("another process has created the tables for more than %d s", limit)
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), driver.OperationTimeout)
		defer cancel()
		_, _ = conn.ExecContext(closing, "DO RELEASE_LOCK("+migrateLockSQL+")", lock) // it ends with the connection, too
	}()
	if exists, err := s.hasTables(ctx, conn); err != nil || exists {
		return err
	}
	for _, text := range SQL(s.prefix) {
		if _, err := conn.ExecContext(ctx, text); err != nil && !isDuplicate(err) {
			return err
		}
	}
	return nil
}

// HasTables reports whether all tables and procedures exist. A migration that was cut off goes on
// from where it ended, because the server commits each statement.
func (s *Store) HasTables(ctx context.Context) (exists bool, err error) {
	ctx, cancel := context.WithDeadline(ctx, driver.DeadlineOf(ctx))
	defer cancel()
	err = s.usePool(ctx, func(conn *sql.Conn) (err error) {
		exists, err = s.hasTables(ctx, conn)
		return err
	})
	if err != nil {
		return false, unavailable("inspect the tables", s.prefix, err)
	}
	return exists, nil
}

func (s *Store) hasTables(ctx context.Context, conn *sql.Conn) (exists bool, err error) {
	const text = "SELECT COUNT(*) > 0 FROM information_schema.routines WHERE routine_schema = DATABASE() AND routine_name = ?"
	err = conn.QueryRowContext(ctx, text, s.prefix+lastProcedure).Scan(&exists)
	return exists, err
}

// lastProcedure is the procedure that a migration creates last. No name is longer.
const lastProcedure = "remove_unused"

// isDuplicate reports whether a table or procedure exists already.
func isDuplicate(err error) bool {
	const table, procedure = 1050, 1304
	n := numberOf(err)
	return n == table || n == procedure
}

var (
	identifiers = regexp.MustCompile(`\bdibs_(\w+)`)
	lists       = regexp.MustCompile(`\blist_of\((\w+|\?)\)`)
)

// overdue is the age from which on the heartbeat of a waiter is missing.
const overdue = driver.WaiterTTL * 11 / 20

const (
	dropAtSQL = "IF(missed = 0, heartbeat + overdue(), GREATEST(heartbeat + waiter_ttl(), missed + waiter_ttl() - overdue()))"
	isOddSQL  = "(missed = 0 AND heartbeat + overdue() <= at OR missed > at OR heartbeat > at + 1000000)"
)

const (
	nowSQL    = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))"
	listOfSQL = `JSON_TABLE($1, '$$[*]' COLUMNS (` +
		`i INT PATH '$$[0]', name VARCHAR(1024) PATH '$$[1]', token VARCHAR(1024) PATH '$$[2]', client VARCHAR(1024) PATH '$$[3]', ttl BIGINT PATH '$$[4]'))`
)

// with sets the prefix of the tables and procedures in a text, and replaces what stands for an
// expression.
func with(prefix, text string) string {
	text = strings.ReplaceAll(text, "now_us()", nowSQL)
	text = strings.ReplaceAll(text, "drop_at()", dropAtSQL)
	text = strings.ReplaceAll(text, "is_odd()", isOddSQL)
	text = strings.ReplaceAll(text, "overdue()", fmt.Sprint(overdue.Microseconds()))
	text = strings.ReplaceAll(text, "waiter_ttl()", fmt.Sprint(driver.WaiterTTL.Microseconds()))
	text = strings.ReplaceAll(text, "max_wanted()", fmt.Sprint(driver.MaxWanted))
	text = lists.ReplaceAllString(text, listOfSQL)
	quoted := "`" + strings.ReplaceAll(strings.ReplaceAll(prefix, "`", "``"), "$", "$$") + "$1`"
	return identifiers.ReplaceAllString(text, quoted)
}

const hasGuardSQL = "SELECT COUNT(*) > 0 FROM dibs_guards WHERE name = UNHEX(?) AND token = UNHEX(?) AND fence <= ?"

const fenceOfSQL = `SELECT fence FROM (
  SELECT fence, reserved FROM dibs_names WHERE name = UNHEX(?) AND token = UNHEX(?)
  UNION ALL SELECT fence, reserved FROM dibs_holders WHERE name = UNHEX(?) AND token = UNHEX(?)
) AS h ORDER BY reserved LIMIT 1`

// statements are the texts that the store sends.
type statements struct {
	acquire, resize, release, cancel, revoke, wanted, extend, removeUnused string
	inspect, list, fenceOf, guard, hasGuard, messages, deleteMessages      string
}

func statementsOf(prefix string) statements {
	return statements{
		acquire: with(prefix, "CALL dibs_acquire(?, ?, ?, ?, ?, ?, ?, ?, ?)"), resize: with(prefix, "CALL dibs_resize(?, ?, ?, ?, ?, ?, ?)"),
		release: with(prefix, "CALL dibs_release(?, ?, ?, ?, ?)"), cancel: with(prefix, "CALL dibs_cancel(?, ?, ?)"),
		revoke: with(prefix, "CALL dibs_revoke(?, ?, ?, ?)"), wanted: with(prefix, "CALL dibs_wanted(?, ?, ?, ?)"), extend: with(prefix, "CALL dibs_extend(?)"),
		removeUnused: with(prefix, "CALL dibs_remove_unused(?, now_us() - ?)"),
		inspect:      with(prefix, file("inspect")), list: with(prefix, file("list")), fenceOf: with(prefix, fenceOfSQL),
		guard: with(prefix, "CALL dibs_guard(UNHEX(?), UNHEX(?), ?)"), hasGuard: with(prefix, hasGuardSQL),
		messages:       with(prefix, "SELECT id, message FROM dibs_messages WHERE client = ? ORDER BY id LIMIT 1000"),
		deleteMessages: with(prefix, "DELETE FROM dibs_messages WHERE id IN "),
	}
}
