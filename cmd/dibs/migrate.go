package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/dibslock/dibs/dashboard/view"
	"github.com/spf13/cobra"
)

func migrateCmd(a *app) *cobra.Command {
	var show bool
	var from, to int
	c := &cobra.Command{
		Use:   "migrate",
		Short: "Create or upgrade the tables in a database",
		Long: `Create the tables and functions of dibs in the database that --url names, or
upgrade those of an earlier release. On PostgreSQL they are in the schema
"dibs", or the one that dibs_schema=NAME in the URL names. On MariaDB and MySQL
their names begin with "dibs_", or with the text that dibs_prefix=TEXT in the
URL sets. Programs go on while migrate runs. If the tables are up to date,
migrate changes nothing. The user needs the right to create them, and for an
upgrade must own them.

With --print, migrate connects to nothing and prints the statements, for a tool
such as goose or golang-migrate. --from is the version that the database has,
and --to the one that it will have; 0 means no tables. If --to is less, the
statements remove what the versions in between have added.

The procedures of MariaDB and MySQL have semicolons. So a connection must send
the text as a whole, with several statements allowed (multiStatements=true).
The clients mariadb and mysql do so with --delimiter=//.`,
		Example: `  dibs migrate --url postgres://owner@db.internal/app
  dibs migrate --url mysql://owner@db.internal/app
  dibs migrate --url postgres://db/app --print > 7_dibs.up.sql
  dibs migrate --url postgres://db/app --print --from 1 --to 0 > 7_dibs.down.sql
  dibs migrate --url mysql://db/app --print | mariadb --delimiter=// app`,
		Args: argCount(0, 0),
	}
	f := c.Flags()
	f.BoolVar(&show, "print", false, "print the SQL statements instead")
	f.IntVar(&from, "from", 0, "with --print: version of the tables before")
	f.IntVar(&to, "to", 0, "with --print: version of the tables afterwards (default the latest)")
	c.RunE = func(*cobra.Command, []string) error {
		if !show && (f.Changed("from") || f.Changed("to")) {
			return usage("migrate: --from and --to need --print")
		}
		return a.withStore(func(ctx context.Context, s *opened) error {
			db := s.database
			if db == nil {
				return usage("migrate: %s is no database: there is nothing to create", s.location)
			}
			if !show {
				return migrate(ctx, a.con, s)
			}
			if !f.Changed("to") {
				to = db.latest
			}
			statements, err := db.statements(from, to)
			if err != nil {
				return usageError{err}
			}
			return a.con.print(textOf(statements))
		})
	}
	return c
}

// textOf returns statements as one text.
func textOf(statements []string) string {
	if len(statements) == 0 {
		return ""
	}
	return strings.Join(statements, ";\n\n") + ";\n"
}

// A migration is the output of migrate.
type migration struct {
	Schema int    `json:"schema"`
	Store  string `json:"store"`
	Name   string `json:"name"` // the schema or the prefix
	From   int    `json:"from"` // table version; 0 if there were none
	To     int    `json:"to"`
}

// migrate waits for --timeout until the database answers. The statements may take longer.
func migrate(ctx context.Context, con *console, s *opened) error {
	db := s.database
	limited, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	from, err := db.version(limited)
	if err == nil && from < db.latest {
		err = db.migrate(ctx)
	}
	if err != nil {
		return err
	}
	m := migration{view.Schema, db.location, db.name, from, max(from, db.latest)}
	where := fmt.Sprintf("%s of %s", db.place, db.location)
	switch {
	case con.json:
		return con.printJSON(m)
	case con.quiet:
		return nil
	case from == 0:
		return con.print(fmt.Sprintf("created the tables of dibs %s\n", where))
	case from < db.latest:
		return con.print(fmt.Sprintf("upgraded the tables of dibs %s from version %d to %d\n", where, m.From, m.To))
	}
	return con.print(fmt.Sprintf("the tables of dibs exist %s: nothing was done\n", where))
}
