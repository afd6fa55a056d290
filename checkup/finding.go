package checkup

import (
	"fmt"
	"strconv"
	"strings"
)

// A Severity says how much a Finding matters.
type Severity int

// The severities, in ascending order.
const (
	Note      Severity = iota // for information
	Unchecked                 // could not be checked
	Warning                   // locks are lost, refused or slow after an event such as a restart or a failover
	Critical                  // locks do not work now, or may be lost without any failure
)

func (s Severity) String() string {
	if s < Note || s > Critical {
		return "Severity(" + strconv.Itoa(int(s)) + ")"
	}
	return [...]string{"note", "unchecked", "warning", "critical"}[s]
}

// ExitCode returns the exit code for a command with this worst severity.
func (s Severity) ExitCode() int { return max(0, int(s-Unchecked)) }

// A Finding is a server problem found by a doctor.
type Finding struct {
	Severity    Severity
	Node        string // the server's address; empty for a single server
	Subject     string // a stable identifier: "eviction"
	What        string // the problem
	Consequence string // the effect on locks
	Remedy      string // the advice
}

// String formats the finding in four lines.
func (f Finding) String() string {
	head := f.Severity.String() + ": " + f.Subject
	if f.Node != "" {
		head += " on " + f.Node
	}
	return fmt.Sprintf("%s\n  found  %s\n  so     %s\n  do     %s\n", head, f.What, f.Consequence, f.Remedy)
}

// Findings are sorted by descending severity, then by node.
type Findings []Finding

// Worst returns the highest severity, or Note if there are no findings.
func (f Findings) Worst() Severity {
	worst := Note
	for _, one := range f {
		worst = max(worst, one.Severity)
	}
	return worst
}

// String formats all findings, with an empty line between. It joins equal findings from several
// servers.
func (f Findings) String() string {
	if len(f) == 0 {
		return "nothing found\n"
	}
	var each []Finding
	nodes := make(map[Finding][]string)
	for _, one := range f {
		node := one.Node
		one.Node = ""
		if nodes[one] == nil {
			each = append(each, one)
		}
		nodes[one] = append(nodes[one], node)
	}
	texts := make([]string, len(each))
	for i, one := range each {
		one.Node = strings.Join(nodes[one], ", ")
		texts[i] = one.String()
	}
	return strings.Join(texts, "\n")
}
