package mysqlstore

import (
	"context"
	"strings"
)

// UseNextVersion makes the store use MigrateToNext's version.
func (s *Store) UseNextVersion() { s.useVersion(Version + 1) }

// MigrateToNext upgrades the tables to a version that does not exist yet: it adds columns, and this
// version's procedures under new names.
func (s *Store) MigrateToNext(ctx context.Context) error {
	const next = Version + 1
	return s.migrateTo(ctx, next, func(version int) []string {
		if version < next {
			return up(s.prefix, version)
		}
		var all []string
		for _, m := range createTable().FindAllStringSubmatch(file("v1/tables"), -1) {
			all = append(all, with(s.prefix, next, "ALTER TABLE "+m[1]+" ADD COLUMN note VARCHAR(10) NOT NULL DEFAULT 'none'"))
		}
		for text := range strings.SplitSeq(file("v1/procedures"), "\nEND;\n") {
			if text = strings.TrimSpace(text); text != "" {
				all = append(all, with(s.prefix, next, text+"\nEND"))
			}
		}
		return append(all, with(s.prefix, next, "INSERT IGNORE INTO dibs_versions (version) VALUES (2)"))
	})
}

// TablePrefixOf returns the prefix of the tables.
func (s *Store) TablePrefixOf() string { return s.prefix }
