package pgstore

import (
	"embed"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/dibslock/dibs/sqlstore"
	"github.com/jackc/pgx/v5"
)

// Version is this package's schema version. A release with other tables or functions increases it.
//
// Functions include the version in their names, and later versions keep the earlier functions for a
// while. So programs of two successive releases can run together: they respect each other's locks.
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

// SQL returns the statements that change a schema from one version to another, for a migration
// tool. Execute them in order, in a single transaction. A statement does not end with a semicolon,
// but a function's body contains semicolons. Version 0 is a database without dibs, and Version is
// the newest. If to is less than from, the statements undo the versions in between. If to is 0,
// they remove all tables with their leases, but not the schema. If a version does not exist, the
// error matches driver.ErrInvalid.
//
// A statement that changes a table waits until all transactions that use the table end. Meanwhile
// new requests for locks wait behind the statement. So set lock_timeout, and repeat the migration
// if a statement exceeds it. Migrate sets this limit and repeats by itself.
func SQL(schema string, from, to int) (statements []string, err error) {
	all, err := sqlstore.Migration(from, to, Version,
		func(version int) []string { return up(schema, version) },
		func(version int) []string { return down(schema, version) })
	if from == 0 && len(all) > 0 {
		all = slices.Insert(all, 0, in(schema, 0, createSchemaSQL))
	}
	return all, err
}

const createSchemaSQL = "CREATE SCHEMA IF NOT EXISTS dibs"

// up returns the statements that create a version in an existing schema.
func up(schema string, version int) (all []string) {
	text := file(fmt.Sprintf("v%d/tables", version)) + file(fmt.Sprintf("v%d/functions", version))
	for _, statement := range split(text) {
		all = append(all, in(schema, version, statement))
	}
	return append(all, in(schema, version, fmt.Sprintf("INSERT INTO dibs.versions (version) VALUES (%d)", version)))
}

// down returns the statements that remove a version.
func down(schema string, version int) (all []string) {
	all = append(all, in(schema, version, fmt.Sprintf("DELETE FROM dibs.versions WHERE version = %d", version)))
	createFunction := regexp.MustCompile(`CREATE FUNCTION (dibs\.\w+\()`)
	for _, m := range createFunction.FindAllStringSubmatch(file(fmt.Sprintf("v%d/functions", version)), -1) {
		name := strings.TrimSuffix(in(schema, version, m[1]), "(")
		all = append(all, "DROP FUNCTION IF EXISTS "+name+" CASCADE") // with the triggers that call it
	}
	for _, statement := range split(file(fmt.Sprintf("v%d/down", version))) {
		all = append(all, in(schema, version, statement))
	}
	return all
}

// split returns the statements of a text, each with the comments before it. A statement ends with a
// semicolon at the end of a line that is not in the body of a function.
func split(text string) (statements []string) {
	statement := ""
	for line := range strings.Lines(text) {
		statement += line
		if strings.HasSuffix(line, ";\n") && strings.Count(statement, "$$")%2 == 0 {
			statements = append(statements, strings.TrimSuffix(strings.TrimSpace(statement), ";"))
			statement = ""
		}
	}
	return statements
}

var call = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\bdibs\.(\w+)\(`) })

// in replaces the schema "dibs" in a text, and adds the version to the functions' names.
func in(schema string, version int, text string) string {
	text = call().ReplaceAllString(text, fmt.Sprintf("dibs.${1}_v%d(", version))
	if schema == "dibs" {
		return text
	}
	tag := "$$" // around functions' bodies
	for i := 0; strings.Contains(schema, tag); i++ {
		tag = fmt.Sprintf("$dibs%d$", i)
	}
	text = strings.ReplaceAll(text, "$$", tag)
	text = strings.ReplaceAll(text, "dibs.", quote(schema)+".")
	return strings.ReplaceAll(text, "SCHEMA IF NOT EXISTS dibs", "SCHEMA IF NOT EXISTS "+quote(schema))
}

func quote(identifier string) string { return pgx.Identifier{identifier}.Sanitize() }

// statements contains texts sent only by this store.
type statements struct {
	acquireQuiet, acquireOne, acquire, releaseQuiet, releaseOne, release, extend, guard, releaseIn string
}

func statementsOf(schema string, version int) (statements, sqlstore.Statements) {
	in := func(text string) string { return in(schema, version, text) }
	own := statements{
		acquireQuiet: in(file("acquire_quiet")), acquireOne: in(acquireOneSQL), acquire: in(acquireSQL),
		releaseQuiet: in(file("release_quiet")), releaseOne: in(releaseOneSQL), release: in(releaseSQL),
		extend: in(file("extend")), guard: in(guardSQL), releaseIn: in(releaseInSQL),
	}
	return own, sqlstore.Statements{
		Resize: in(resizeSQL), Cancel: in(cancelSQL), Revoke: in(revokeSQL), Wanted: in(wantedSQL), ReserveFences: in(reserveFencesSQL),
		FenceOf: in(fenceOfSQL), Inspect: in(file("inspect")), List: in(file("list")),
		RemoveUnused: in("SELECT dibs.remove_unused($1, dibs.now() - $2)"), Given: in(givenSQL),
	}
}
