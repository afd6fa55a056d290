package sqlstore

import "regexp"

// TablesOf returns the tables created by a PostgreSQL text, without their schema.
func TablesOf(text string) (names []string) {
	tableText := regexp.MustCompile(`CREATE (?:UNLOGGED )?TABLE (?:"(?:[^"]|"")*"|\w+)\.(\w+)`)
	for _, m := range tableText.FindAllStringSubmatch(text, -1) {
		names = append(names, m[1])
	}
	return names
}
