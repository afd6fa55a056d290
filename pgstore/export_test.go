package pgstore

import (
	"context"
	"fmt"
)

// AcquireQuiet returns the statement that acquires a name without waiters.
func (s *Store) AcquireQuiet() string { return s.text.acquireQuiet }

// UseNextVersion makes the store use MigrateToNext's version.
func (s *Store) UseNextVersion() { s.useVersion(Version + 1) }

// MigrateToNext upgrades the schema to a version that does not exist yet: it adds columns, and this
// version's functions under new names.
func (s *Store) MigrateToNext(ctx context.Context) error {
	const next = Version + 1
	return s.migrateTo(ctx, next, func(version int) []string {
		if version < next {
			return up(s.schema, version)
		}
		changes := "DROP TRIGGER release_at_commit ON dibs.releases;\nINSERT INTO dibs.versions (version) VALUES (2);\n"
		// The order in which transactions use them. With another one, both sides would wait for each other.
		for _, table := range []string{"levels", "releases", "names", "holders", "waiters", "removed", "versions"} {
			changes += fmt.Sprintf("ALTER TABLE dibs.%s ADD COLUMN note text NOT NULL DEFAULT 'none';\n", table)
		}
		var all []string
		for _, statement := range split(changes + file("v1/functions")) {
			all = append(all, in(s.schema, next, statement))
		}
		return all
	})
}

// SchemaName returns the schema of the tables.
func (s *Store) SchemaName() string { return s.schema }
