// Package session lists the session settings with which a store's requests fail half-way, or return
// too little.
package session

import (
	"database/sql"
	"fmt"
	"slices"
	"strings"
)

// A Setting is a session variable, with the values that a store can work with.
type Setting struct {
	Name   string
	Values []string
	Effect string // with any other value
}

// Settings contains the settings that matter.
var Settings = []Setting{
	{"autocommit", []string{"1"}, "what a store has changed is not committed"},
	{"sql_safe_updates", []string{"0"}, "renewals are refused"},
	{"completion_type", []string{"NO_CHAIN", "0"}, "each acquire is refused"},
	{"sql_big_selects", []string{"1"}, "lists may be refused"},
	{"sql_select_limit", []string{"18446744073709551615"}, "lists are cut off"},
}

// Problems returns the problems in a session's settings, by their index in Settings. queryRow
// queries the session.
func Problems(queryRow func(text string, args ...any) *sql.Row) (problems map[int]string, err error) {
	names, values, into := make([]string, len(Settings)), make([]string, len(Settings)), make([]any, len(Settings))
	for i, s := range Settings {
		names[i], into[i] = "@@SESSION."+s.Name, &values[i]
	}
	// SHOW VARIABLES is itself subject to these settings.
	if err := queryRow("SELECT " + strings.Join(names, ", ")).Scan(into...); err != nil {
		return nil, err
	}
	problems = make(map[int]string)
	for i, s := range Settings {
		if !slices.Contains(s.Values, strings.ToUpper(values[i])) {
			problems[i] = fmt.Sprintf("%s is %s in this session", s.Name, values[i])
		}
	}
	return problems, nil
}

// Advice returns advice about a setting.
func (s Setting) Advice() string {
	return fmt.Sprintf("set %s=%s in the data source name or the URL, or where the server sets it", s.Name, s.Values[0])
}
