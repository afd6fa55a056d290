package checkup

import "testing"

func TestFindingsOfSeveralServers(t *testing.T) {
	found := Findings{
		{Critical, "a", "role", "w", "c", "r"},
		{Warning, "a", "disk", "w", "c", "r"},
		{Warning, "b", "disk", "w", "c", "r"},
		{Note, "", "prefix", "w", "c", "r"},
	}
	const text = "\n  found  w\n  so     c\n  do     r\n"
	want := "critical: role on a" + text + "\nwarning: disk on a, b" + text + "\nnote: prefix" + text
	if have := found.String(); have != want || found.Worst() != Critical {
		t.Errorf("have %v\n%s\nwant\n%s", found.Worst(), have, want)
	}
}

func TestSeverity(t *testing.T) {
	for severity, code := range map[Severity]int{Note: 0, Unchecked: 0, Warning: 1, Critical: 2} {
		if have := severity.ExitCode(); have != code {
			t.Errorf("%v: have exit code %d, want %d", severity, have, code)
		}
	}
	for severity, want := range map[Severity]string{
		Note: "note", Unchecked: "unchecked", Warning: "warning", Critical: "critical",
		9: "Severity(9)", -1: "Severity(-1)",
	} {
		if have := severity.String(); have != want {
			t.Errorf("have %q, want %q", have, want)
		}
	}
}
