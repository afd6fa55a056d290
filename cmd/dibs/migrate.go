package main

import (
	"context"
	"fmt"
	"time"

	"github.com/dibslock/dibs/internal/view"
	"github.com/spf13/cobra"
)

func migrateCmd(a *app) *cobra.Command {
	var show bool
	c := &cobra.Command{
		Use:   "migrate",
		Short: "Create the tables in a database",
		Long: `Create the tables and functions of dibs in the database that --url names. On
PostgreSQL they are in the schema "dibs", or the one that dibs_schema=NAME in
the URL names. On MariaDB and MySQL their names begin with "dibs_", or with the
text that dibs_prefix=TEXT in the URL sets. If the tables exist, migrate changes
nothing. The user needs the right to create them.

With --print, migrate connects to nothing and prints the statements, for a tool
such as goose or golang-migrate. The procedures of MariaDB and MySQL have
semicolons. So a connection must send the text as a whole, with several
statements allowed (multiStatements=true). The clients mariadb and mysql do so
with --delimiter=//.`,
		Example: `  dibs migrate --url postgres://owner@db.internal/app
  dibs migrate --url mysql://owner@db.internal/app
  dibs migrate --url postgres://db.internal/app --print > 0007_dibs.sql
  dibs migrate --url mysql://db/app --print | mariadb --delimiter=// app`,
		Args: argCount(0, 0),
		RunE: func(*cobra.Command, []string) error {
			return a.withStore(func(ctx context.Context, s *opened) error {
				switch {
				case s.database == nil:
					return usage("migrate: %s is no database: there is nothing to create", s.location)
				case show:
					return a.con.print(s.database.statements)
				}
				return migrate(ctx, a.con, s)
			})
		},
	}
	c.Flags().BoolVar(&show, "print", false, "print the SQL statements instead")
	return c
}

// A migration is the output of migrate.
type migration struct {
	Schema  int    `json:"schema"`
	Store   string `json:"store"`
	Name    string `json:"name"` // the schema or the prefix
	Created bool   `json:"created"`
}

// migrate waits for --timeout until the database has answered. The statements may take longer.
func migrate(ctx context.Context, con *console, s *opened) error {
	const longest = time.Minute
	limited, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	exists, err := s.database.hasTables(limited)
	if err == nil && !exists {
		limited, cancel := context.WithTimeout(ctx, longest)
		defer cancel()
		err = s.database.migrate(limited)
	}
	if err != nil {
		return err
	}
	db := s.database
	switch {
	case con.json:
		return con.printJSON(migration{view.Schema, s.location, db.name, !exists})
	case con.quiet:
		return nil
	case exists:
		return con.print(fmt.Sprintf("the tables of dibs exist %s of %s: nothing was done\n", db.place, s.location))
	}
	return con.print(fmt.Sprintf("created the tables of dibs %s of %s\n", db.place, s.location))
}
