package doctor

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/checkup"
	"github.com/dibslock/dibs/mysqlstore"
	"github.com/go-sql-driver/mysql"
)

const noLocks = "nothing can be locked"

// wanted returns the names of the tables, and the bodies of the procedures by name.
func wanted(prefix string) (tables []string, procedures map[string]string) {
	tableText := regexp.MustCompile("CREATE TABLE `((?:[^`]|``)*)`")
	procedureText := regexp.MustCompile("(?s)CREATE PROCEDURE `((?:[^`]|``)*)`\\(.*?\n(BEGIN.*)$")
	procedures = make(map[string]string)
	statements, err := mysqlstore.SQL(prefix, 0, mysqlstore.Version)
	if err != nil {
		panic(err) // there are these versions
	}
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

// checkTables compares the tables and procedures with those of this version of dibs.
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
	tables, procedures := wanted(e.target.Prefix)
	e.reportMissing("table", tables, engines)
	e.checkVersion(bodies, procedures)
	e.reportMissing("procedure", slices.Sorted(maps.Keys(procedures)), bodies)
	var differ, engine []string
	for _, name := range slices.Sorted(maps.Keys(procedures)) {
		if body := bodies[name]; body != "" && !checkup.SameCode(body, procedures[name]) {
			differ = append(differ, name)
		}
	}
	for _, name := range tables {
		if e := engines[name]; e != "" && e != "InnoDB" {
			engine = append(engine, name+" ("+e+")")
		}
	}
	e.AddAll(
		checkup.If(len(differ) > 0, driver.Critical, "schema", "procedures that are not of this release of dibs: "+checkup.List(differ),
			"locks of this version may not exclude each other", "compare them with the output of dibs migrate --print, and replace them as their owner"),
		checkup.If(len(engine) > 0, driver.Critical, "engine", "tables without transactions: "+checkup.List(engine),
			"two clients may acquire the same name", "ALTER TABLE … ENGINE = InnoDB"),
	)
}

// checkVersion explains why the database has tables, but no procedures of this program.
func (e *examination) checkVersion(have, want map[string]string) {
	if e.unusable || len(checkup.Missing(have, slices.Sorted(maps.Keys(want)))) < len(want) {
		return
	}
	version, err := e.store.SchemaVersion(e.Ctx)
	if e.Unchecked("schema", "the version of the tables", err) {
		return
	}
	found := checkup.FindingsOfVersion("the database", version, mysqlstore.Version)
	e.AddAll(found...)
	e.unusable = version != mysqlstore.Version
}

// reportMissing reports the tables or procedures that the database lacks, once.
func (e *examination) reportMissing(kind string, want []string, have map[string]string) {
	missing := checkup.Missing(have, want)
	if len(missing) == 0 || e.unusable {
		return
	}
	e.unusable = true
	e.Find(driver.Critical, "schema", fmt.Sprintf("the database lacks a %s: %s", kind, checkup.List(missing)), noLocks,
		"dibs migrate, or Migrate of the store; or GRANT EXECUTE, because a user sees only the procedures that it may use")
}

// checkLocking tests what settings only suggest: that this user can lock.
func (e *examination) checkLocking() {
	if e.unusable || e.Ctx.Err() != nil {
		return
	}
	smoke := checkup.TestLocking(e.Ctx, e.store, true)
	if e.Ctx.Err() != nil {
		return
	}
	var server *mysql.MySQLError
	denied := errors.As(errors.Join(smoke.Lock, smoke.Listen, smoke.Grant), &server) &&
		slices.Contains([]uint16{1044, 1142, 1143, 1227, 1370}, server.Number)
	e.AddFirst(
		checkup.If(denied, driver.Critical, "rights", fmt.Sprintf("user %s lacks a right: %v", e.facts.user, server), "names cannot be locked or released",
			fmt.Sprintf("GRANT SELECT, INSERT, UPDATE, DELETE, EXECUTE on this database TO %s", e.facts.account())),
		checkup.If(smoke.Lock != nil, driver.Critical, "lock", fmt.Sprintf("a lock on a random name failed: %v", smoke.Lock),
			"other locks will fail too", "see the other findings and the error"),
		checkup.If(smoke.Grant != nil, driver.Warning, "notifications", fmt.Sprintf("no notification of a hand-off: %v", smoke.Grant),
			"waiters retry, so a hand-off takes longer", "see the other findings"),
	)
}
