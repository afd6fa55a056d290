package doctor

import (
	"cmp"
	_ "embed" // tables.sql
	"fmt"
	"regexp"
	"strings"

	"github.com/dibslock/dibs/checkup"
	"github.com/dibslock/dibs/sqlstore"
	"github.com/jackc/pgx/v5"
)

//go:embed tables.sql
var tablesSQL string

const noLocks = "nothing can be locked"

// functionsOf returns the functions that statements create, by name.
func functionsOf(statements []string) map[string]string {
	functionText := regexp.MustCompile(`(?s)CREATE FUNCTION (?:"(?:[^"]|"")*"|\w+)\.(\w+)\(.*?\sAS (?:\$dibs\d\$(.*?)\$dibs\d\$|\$\$(.*?)\$\$|'(.*?)';)`)
	bodies := make(map[string]string)
	for _, m := range functionText.FindAllStringSubmatch(strings.Join(statements, ";\n"), -1) {
		bodies[m[1]] = cmp.Or(m[2:]...)
	}
	return bodies
}

func (e *examination) schema() checkup.Schema {
	return checkup.Schema{
		Place: fmt.Sprintf("the schema %q", e.target.Schema), Version: e.target.Version,
		Tables:  sqlstore.TablesOf(strings.Join(e.target.Statements, ";\n")),
		Routine: "function", Routines: functionsOf(e.target.Statements),
		IfNone: "dibs migrate, or Migrate of the store",
		IfSome: "compare the schema with the output of dibs migrate --print, and add what is missing as its owner",
	}
}

func (e *examination) checkTables() {
	usage, rights := true, make(map[string]string)
	var table, lacks string
	err := e.query([]any{&table, &usage, &lacks}, func() { rights[table] = lacks }, tablesSQL, e.target.Schema)
	if e.Unchecked("tables", "the tables and the rights to use them", err) {
		return
	}
	schema := e.schema()
	e.CheckTables(schema, rights)
	name := pgx.Identifier{e.target.Schema}.Sanitize()
	e.AddAll(checkup.If(!usage, checkup.Critical, "rights", fmt.Sprintf("user %s lacks USAGE on the schema %s", e.facts.user, name),
		noLocks, fmt.Sprintf("GRANT USAGE ON SCHEMA %s TO %s", name, e.facts.user)))
	for _, table := range schema.Tables {
		if lacks := rights[table]; lacks != "" {
			e.Unusable = true
			e.Find(checkup.Critical, "rights", fmt.Sprintf("user %s lacks %s on the table %s.%s", e.facts.user, lacks, name, table),
				"names cannot be locked or released", fmt.Sprintf("GRANT %s ON %s.%s TO %s", lacks, name, table, e.facts.user))
		}
	}
	e.Unusable = e.Unusable || !usage
}

// checkFunctions compares the functions with this dibs version's.
func (e *examination) checkFunctions() {
	bodies, denied := make(map[string]string), []string(nil)
	var name, body string
	var executes bool
	err := e.query([]any{&name, &body, &executes}, func() {
		bodies[name] = body
		if !executes {
			denied = append(denied, name)
		}
	}, `SELECT p.proname::text, p.prosrc, has_function_privilege(p.oid, 'EXECUTE')
		FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace WHERE n.nspname = $1`, e.target.Schema)
	if e.Unchecked("functions", "the functions and the rights to use them", err) {
		return
	}
	e.CheckRoutines(e.schema(), bodies)
	e.AddAll(checkup.If(len(denied) > 0, checkup.Critical, "rights", fmt.Sprintf("user %s lacks EXECUTE on functions: %s", e.facts.user, checkup.List(denied)),
		noLocks, fmt.Sprintf("GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA %s TO %s", pgx.Identifier{e.target.Schema}.Sanitize(), e.facts.user)))
	e.Unusable = e.Unusable || len(denied) > 0
}
