package pgstore

import (
	"embed"
	"fmt"
	"regexp"
	"strings"
	"sync"

	"github.com/dibslock/dibs/internal/sqlstore"
	"github.com/jackc/pgx/v5"
)

// Version is the version of the schema that this package uses. Each release that changes tables or
// functions has a later one.
//
// Functions have the version in their names, and later versions keep those of earlier ones for a
// while. So programs with the last and with the next release exclude each other while both run.
const Version = 1

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

// SQL returns the statements that take a schema from one version to another, for a tool that manages
// migrations. Version 0 is a database without dibs. If to is less than from, the statements undo
// those of the versions in between: to 0 removes all tables with their leases, but not the schema.
// The error matches driver.ErrInvalid, and means that there is no such version.
//
// A statement that changes a table waits for the transactions that use it, and others wait behind
// it: set lock_timeout, and repeat the migration if it fails for that reason. Migrate does so.
func SQL(schema string, from, to int) (string, error) {
	versions, err := sqlstore.StepsBetween(from, to, Version)
	if err != nil {
		return "", err
	}
	var all strings.Builder
	if from == 0 && to > 0 {
		all.WriteString(in(schema, 0, createSchemaSQL))
	}
	for _, v := range versions {
		if to < from {
			all.WriteString(down(schema, v))
		} else {
			all.WriteString(up(schema, v))
		}
	}
	return all.String(), nil
}

const createSchemaSQL = "CREATE SCHEMA IF NOT EXISTS dibs;\n\n"

// up returns the statements that create a version in an existing schema.
func up(schema string, version int) string {
	text := file(fmt.Sprintf("v%d/tables", version)) + "\n" + file(fmt.Sprintf("v%d/functions", version))
	return in(schema, version, text+fmt.Sprintf("\nINSERT INTO dibs.versions (version) VALUES (%d);\n", version))
}

// down returns the statements that remove a version.
func down(schema string, version int) string {
	text := in(schema, version, fmt.Sprintf("DELETE FROM dibs.versions WHERE version = %d;\n", version))
	createFunction := regexp.MustCompile(`CREATE FUNCTION (dibs\.\w+\()`)
	for _, m := range createFunction.FindAllStringSubmatch(file(fmt.Sprintf("v%d/functions", version)), -1) {
		name := strings.TrimSuffix(in(schema, version, m[1]), "(")
		text += "DROP FUNCTION IF EXISTS " + name + " CASCADE;\n" // with the triggers that call it
	}
	return text + in(schema, version, file(fmt.Sprintf("v%d/down", version)))
}

var call = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\bdibs\.(\w+)\(`) })

// in replaces the schema "dibs" in a text, and adds the version to the names of functions.
func in(schema string, version int, text string) string {
	text = call().ReplaceAllString(text, fmt.Sprintf("dibs.${1}_v%d(", version))
	if schema == "dibs" {
		return text
	}
	tag := "$$" // of the bodies of functions
	for i := 0; strings.Contains(schema, tag); i++ {
		tag = fmt.Sprintf("$dibs%d$", i)
	}
	text = strings.ReplaceAll(text, "$$", tag)
	text = strings.ReplaceAll(text, "dibs.", quote(schema)+".")
	return strings.ReplaceAll(text, "SCHEMA IF NOT EXISTS dibs;", "SCHEMA IF NOT EXISTS "+quote(schema)+";")
}

func quote(identifier string) string { return pgx.Identifier{identifier}.Sanitize() }

// statements are the texts that the store sends.
type statements struct {
	acquireQuiet, acquireOne, acquire, resize, releaseQuiet, releaseOne, release, cancel, revoke, fenceOf, reserveFences, wanted, extend, inspect, list, guard, releaseIn, committed, removeUnused string
}

func statementsOf(schema string, version int) statements {
	in := func(text string) string { return in(schema, version, text) }
	return statements{
		acquireQuiet: in(file("acquire_quiet")), acquireOne: in(acquireOneSQL), acquire: in(acquireSQL), resize: in(resizeSQL),
		releaseQuiet: in(file("release_quiet")), releaseOne: in(releaseOneSQL), release: in(releaseSQL), cancel: in(cancelSQL), revoke: in(revokeSQL),
		wanted: in(wantedSQL), reserveFences: in(reserveFencesSQL), fenceOf: in(fenceOfSQL),
		extend: in(file("extend")), inspect: in(file("inspect")), list: in(file("list")),
		guard:        in(guardSQL),
		releaseIn:    in(releaseInSQL),
		committed:    in(committedSQL),
		removeUnused: in("SELECT dibs.remove_unused($1, dibs.now() - $2)"),
	}
}
