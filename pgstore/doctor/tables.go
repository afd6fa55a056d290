package doctor

import (
	"cmp"
	_ "embed" // tables.sql
	"fmt"
	"maps"
	"regexp"
	"slices"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/checkup"
	"github.com/dibslock/dibs/internal/sqlstore"
	"github.com/dibslock/dibs/pgstore"
	"github.com/jackc/pgx/v5"
)

//go:embed tables.sql
var tablesSQL string

const noLocks = "nothing can be locked"

// schemaSQL returns the statements that create the schema.
func schemaSQL(schema string) string {
	text, err := pgstore.SQL(schema, 0, pgstore.Version)
	if err != nil {
		panic(err) // there are these versions
	}
	return text
}

// functionsOf returns the functions of the store, by name.
func functionsOf(schema string) map[string]string {
	functionText := regexp.MustCompile(`(?s)CREATE FUNCTION (?:"(?:[^"]|"")*"|\w+)\.(\w+)\(.*?\sAS (?:\$dibs\d\$(.*?)\$dibs\d\$|\$\$(.*?)\$\$|'(.*?)';)`)
	bodies := make(map[string]string)
	for _, m := range functionText.FindAllStringSubmatch(schemaSQL(schema), -1) {
		bodies[m[1]] = cmp.Or(m[2:]...)
	}
	return bodies
}

func (e *examination) checkTables() {
	rows, err := e.query(tablesSQL, e.target.Schema)
	usage, rights := true, make(map[string]string)
	if err == nil {
		var table, lacks string
		_, err = pgx.ForEachRow(rows, []any{&table, &usage, &lacks}, func() error {
			rights[table] = lacks
			return nil
		})
	}
	if e.Unchecked("tables", "the tables and the rights to use them", err) {
		return
	}
	tables := sqlstore.TablesOf(schemaSQL(e.target.Schema))
	e.reportMissing("table", tables, rights)
	schema := pgx.Identifier{e.target.Schema}.Sanitize()
	e.AddAll(checkup.If(!usage, driver.Critical, "rights", fmt.Sprintf("user %s lacks USAGE on the schema %s", e.facts.user, schema),
		noLocks, fmt.Sprintf("GRANT USAGE ON SCHEMA %s TO %s", schema, e.facts.user)))
	for _, table := range tables {
		if lacks := rights[table]; lacks != "" {
			e.unusable = true
			e.Find(driver.Critical, "rights", fmt.Sprintf("user %s lacks %s on the table %s.%s", e.facts.user, lacks, schema, table),
				"names cannot be locked or released", fmt.Sprintf("GRANT %s ON %s.%s TO %s", lacks, schema, table, e.facts.user))
		}
	}
	e.unusable = e.unusable || !usage
}

// checkFunctions compares the functions with those of this version of dibs.
func (e *examination) checkFunctions() {
	rows, err := e.query(`SELECT p.proname::text, p.prosrc, has_function_privilege(p.oid, 'EXECUTE')
		FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace WHERE n.nspname = $1`, e.target.Schema)
	bodies, denied := make(map[string]string), []string(nil)
	if err == nil {
		var name, body string
		var executes bool
		_, err = pgx.ForEachRow(rows, []any{&name, &body, &executes}, func() error {
			bodies[name] = body
			if !executes {
				denied = append(denied, name)
			}
			return nil
		})
	}
	if e.Unchecked("functions", "the functions and the rights to use them", err) {
		return
	}
	want := functionsOf(e.target.Schema)
	if len(checkup.Missing(bodies, slices.Sorted(maps.Keys(want)))) == len(want) {
		e.checkVersion()
	}
	e.reportMissing("function", slices.Sorted(maps.Keys(want)), bodies)
	var differ []string
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if body, exists := bodies[name]; exists && !checkup.SameCode(body, want[name]) {
			differ = append(differ, name)
		}
	}
	schema := pgx.Identifier{e.target.Schema}.Sanitize()
	e.AddAll(
		checkup.If(len(differ) > 0, driver.Critical, "schema", "functions that are not of this release of dibs: "+checkup.List(differ),
			"locks of this version may not exclude each other", "compare them with the output of dibs migrate --print, and replace them as their owner"),
		checkup.If(len(denied) > 0, driver.Critical, "rights", fmt.Sprintf("user %s lacks EXECUTE on functions: %s", e.facts.user, checkup.List(denied)),
			noLocks, fmt.Sprintf("GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA %s TO %s", schema, e.facts.user)),
	)
	e.unusable = e.unusable || len(denied) > 0
}

// checkVersion explains why the schema has tables, but no functions of this program.
func (e *examination) checkVersion() {
	version, err := e.store.SchemaVersion(e.Ctx)
	if e.unusable || e.Unchecked("schema", "the version of the schema", err) {
		return
	}
	e.AddAll(checkup.FindingsOfVersion(fmt.Sprintf("the schema %q", e.target.Schema), version, pgstore.Version)...)
	e.unusable = version != pgstore.Version
}

// reportMissing reports the tables or functions that the schema lacks, once.
func (e *examination) reportMissing(kind string, want []string, have map[string]string) {
	missing := checkup.Missing(have, want)
	if len(missing) == 0 || e.unusable {
		return
	}
	e.unusable = true
	remedy := "dibs migrate, or Migrate of the store"
	if len(missing) < len(want) {
		remedy = "compare the schema with the output of dibs migrate --print, and add what is missing as its owner"
	}
	e.Find(driver.Critical, "schema", fmt.Sprintf("the schema %q lacks a %s: %s", e.target.Schema, kind, checkup.List(missing)), noLocks, remedy)
}
