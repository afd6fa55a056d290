package view

import "github.com/dibslock/dibs/checkup"

// A Finding is a problem found by a doctor.
type Finding struct {
	Severity    string `json:"severity"` // note, unchecked, warning, critical
	Node        string `json:"node,omitempty"`
	Subject     string `json:"subject"`
	What        string `json:"what"`
	Consequence string `json:"consequence"`
	Remedy      string `json:"remedy"`
}

// FindingsOf returns findings in their JSON form.
func FindingsOf(found checkup.Findings) []Finding {
	all := make([]Finding, len(found))
	for i, f := range found {
		all[i] = Finding{f.Severity.String(), f.Node, f.Subject, f.What, f.Consequence, f.Remedy}
	}
	return all
}
