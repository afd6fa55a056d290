// Package session knows the settings of a session with which requests of a store fail half-way, or
// return less than there is.
package session

import (
	"database/sql"
	"fmt"
	"slices"
	"strings"
)

// A Setting is a variable of a session, and the values that a store can work with.
type Setting struct {
	Name   string
	Values []string
	Effect string // of any other value
}

// Settings are those that matter.
var Settings = []Setting{
	{"autocommit", []string{"1"}, "what a store has changed is not committed"},
	{"sql_safe_updates", []string{"0"}, "renewals are refused"},
	{"completion_type", []string{"NO_CHAIN", "0"}, "each acquire is refused"},
	{"sql_big_selects", []string{"1"}, "lists may be refused"},
	{"sql_select_limit", []string{"18446744073709551615"}, "lists are cut off"},
}

// Problems returns what is wrong with the settings of a session, by their index in Settings. queryRow
// queries the session.
func Problems(queryRow func(text string, args ...any) *sql.Row) (problems map[int]string, err error) {
	names, values, into := make([]string, len(Settings)), make([]string, len(Settings)), make([]any, len(Settings))
	for i, s := range Settings {
		names[i], into[i] = "@@SESSION."+s.Name, &values[i]
	}
	// SHOW VARIABLES is itself subject to one of them.
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

// Advice returns what to do about a setting.
func (s Setting) Advice() string {
	return fmt.Sprintf("set %s=%s in the data source name or the URL, or where the server sets it", s.Name, s.Values[0])
}
