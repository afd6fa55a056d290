package checkup_test

import (
	"context"
	"errors"
	"testing"

	"github.com/dibslock/dibs/checkup"
	"github.com/dibslock/dibs/memstore"
)

// A versioned store is in a database whose schema has a version.
type versioned struct {
	*memstore.Store

	version int
	err     error
}

func (v versioned) SchemaVersion(context.Context) (int, error) { return v.version, v.err }

// Missing and foreign routines should be a single finding, which explains them by the version if it
// can.
func TestRoutines(t *testing.T) {
	t.Parallel()
	mine := checkup.Schema{
		Place: `the schema "dibs"`, Version: 2, Routine: "function",
		Routines: map[string]string{"a": "one; -- a comment", "b": "two"}, IfNone: "migrate", IfSome: "repair",
	}
	for _, c := range []struct {
		what     string
		version  int
		have     map[string]string
		want     string // the expected finding
		do       string
		unusable bool
	}{
		{"all", 2, map[string]string{"a": "one;", "b": "two", "other": ""}, "", "", false},
		{"unreadable", 2, map[string]string{"a": "", "b": ""}, "", "", false},
		{"other text", 2, map[string]string{"a": "one;", "b": "2"}, "functions that are not of this release of dibs: b", "", false},
		{"some", 2, map[string]string{"a": "one;"}, `the schema "dibs" lacks a function: b`, "repair", true},
		{"none", 2, nil, `the schema "dibs" lacks a function: a, b`, "migrate", true},
		{"earlier", 1, nil, `the schema "dibs" has version 1 of the tables, but this program needs version 2`, "", true},
		{"later", 3, nil, `the schema "dibs" has version 3 of the tables, which has removed version 2 of this program`, "", true},
	} {
		d := checkup.Database{Server: server(t), Store: versioned{memstore.New(), c.version, nil}}
		d.CheckRoutines(mine, c.have)
		found := d.Findings()
		if (c.want == "") != (len(found) == 0) || len(found) > 1 || d.Unusable != c.unusable {
			t.Errorf("%s: unusable: %t, found:\n%v", c.what, d.Unusable, found)
		}
		if len(found) == 1 && (found[0].What != c.want || c.do != "" && found[0].Remedy != c.do) {
			t.Errorf("%s: want %q, found:\n%v", c.what, c.want, found)
		}
	}
}

// A database should be examined if it can be reached, or if it refuses only because of a right.
func TestExamineDatabase(t *testing.T) {
	t.Parallel()
	refused := errors.New("permission denied")
	for _, denied := range []bool{false, true} {
		examined := false
		found, err := checkup.ExamineDatabase(t.Context(), versioned{memstore.New(), 0, refused}, func(err error) bool { return denied && errors.Is(err, refused) },
			func(d checkup.Database) {
				result, tried := d.TryLock(true)
				examined = tried && result == checkup.Result{}
			})
		if len(found) > 0 || examined != denied || errors.Is(err, refused) == denied {
			t.Errorf("denied: %t: examined: %t, %v, found:\n%v", denied, examined, err, found)
		}
	}
}
