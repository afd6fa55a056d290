package doctor

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/dibslock/dibs/checkup"
	"github.com/go-sql-driver/mysql"
)

// wanted returns the names of the tables that statements create, and the bodies of the procedures by name.
func wanted(statements []string) (tables []string, procedures map[string]string) {
	tableText := regexp.MustCompile("CREATE TABLE `((?:[^`]|``)*)`")
	procedureText := regexp.MustCompile("(?s)CREATE PROCEDURE `((?:[^`]|``)*)`\\(.*?\n(BEGIN.*)$")
	procedures = make(map[string]string)
	for _, text := range statements {
		if m := tableText.FindStringSubmatch(text); m != nil {
			tables = append(tables, strings.ReplaceAll(m[1], "``", "`"))
		}
		if m := procedureText.FindStringSubmatch(text); m != nil {
			procedures[strings.ReplaceAll(m[1], "``", "`")] = m[2]
		}
	}
	return tables, procedures
}

// checkTables compares the tables and procedures with this dibs version's.
func (e *examination) checkTables() {
	engines, err := e.pairs("SELECT table_name, engine FROM information_schema.tables WHERE table_schema = DATABASE()")
	if e.Unchecked("tables", "the tables", err) {
		return
	}
	// A user who does not own a procedure cannot see its body.
	bodies, err := e.pairs("SELECT routine_name, routine_definition FROM information_schema.routines WHERE routine_schema = DATABASE()")
	if e.Unchecked("procedures", "the procedures", err) {
		return
	}
	tables, procedures := wanted(e.target.Statements)
	const migrate = "dibs migrate, or Migrate of the store; or GRANT EXECUTE, because a user sees only the procedures that it may use"
	schema := checkup.Schema{
		Place: "the database", Version: e.target.Version, Tables: tables,
		Routine: "procedure", Routines: procedures, IfNone: migrate, IfSome: migrate,
	}
	e.CheckTables(schema, engines)
	e.CheckRoutines(schema, bodies)
	var others []string
	for _, name := range tables {
		if engine := engines[name]; engine != "" && engine != "InnoDB" {
			others = append(others, name+" ("+engine+")")
		}
	}
	e.AddAll(checkup.If(len(others) > 0, checkup.Critical, "engine", "tables without transactions: "+checkup.List(others),
		"two clients may acquire the same name", "ALTER TABLE … ENGINE = InnoDB"))
}

// checkLocking tests whether this user can lock. Settings only suggest it.
func (e *examination) checkLocking() {
	result, tried := e.TryLock(true)
	if !tried {
		return
	}
	var server *mysql.MySQLError
	denied := errors.As(errors.Join(result.Lock, result.Listen, result.Grant), &server) &&
		slices.Contains([]uint16{1044, 1142, 1143, 1227, 1370}, server.Number)
	e.AddFirst(
		checkup.If(denied, checkup.Critical, "rights", fmt.Sprintf("user %s lacks a right: %v", e.facts.user, server), "names cannot be locked or released",
			fmt.Sprintf("GRANT SELECT, INSERT, UPDATE, DELETE, EXECUTE on this database TO %s", e.facts.account())),
		result.FailedLock(),
		result.FailedGrant("see the other findings"),
	)
}
