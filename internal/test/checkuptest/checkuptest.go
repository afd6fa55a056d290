// Package checkuptest checks the findings of stores.
package checkuptest

import (
	"slices"
	"strings"
	"testing"

	"github.com/dibslock/dibs/checkup"
)

// WantSorted checks properties that all findings should have.
func WantSorted(t *testing.T, found checkup.Findings) {
	t.Helper()
	for i, f := range found {
		if f.Subject == "" || f.What == "" || f.Consequence == "" || f.Remedy == "" {
			t.Errorf("%+v: something is empty", f)
		}
		if i == 0 {
			continue
		}
		if before := found[i-1]; before.Severity < f.Severity || before.Severity == f.Severity && before.Node > f.Node {
			t.Errorf("%v comes after %v", f, before)
		}
	}
}

// Want checks for a single finding about a subject.
func Want(t *testing.T, found checkup.Findings, severity checkup.Severity, subject, says string) {
	t.Helper()
	i := slices.IndexFunc(found, func(f checkup.Finding) bool { return f.Subject == subject })
	if i < 0 || found[i].Severity != severity || !strings.Contains(found[i].String(), says) {
		t.Errorf("want %v: %s with %q, found:\n%v", severity, subject, says, found)
	}
}

// WantOnly is [Want], and checks that there are no others.
func WantOnly(t *testing.T, found checkup.Findings, severity checkup.Severity, subject, says string) {
	t.Helper()
	Want(t, found, severity, subject, says)
	if len(found) != 1 {
		t.Errorf("want only %s, found:\n%v", subject, found)
	}
}
