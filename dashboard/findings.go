package dashboard

import (
	"github.com/dibslock/dibs/checkup"
	"github.com/dibslock/dibs/internal/view"
)

// A findingList is what a doctor has found.
type findingList struct {
	At       string
	Findings []findingRow
	Err      string
	None     string // why there are no findings
}

type findingRow struct {
	Severity, Class, Node, Subject, What, Consequence, Remedy string
}

func (h *handler) findingsOf(f *frame, r *report) findingList {
	switch {
	case h.config.Doctor == nil:
		return findingList{None: "This dashboard has no doctor."}
	case r == nil:
		return findingList{None: "The first check is running."}
	}
	l := findingList{At: clock(r.at, f.snapshot.At)}
	if r.err != nil {
		l.Err = view.Safe(view.ErrorText(r.err))
	}
	for _, one := range r.findings {
		l.Findings = append(l.Findings, findingRow{
			Severity: one.Severity.String(), Class: severityClass(one.Severity), Node: view.Safe(one.Node), Subject: view.Safe(one.Subject),
			What: view.Safe(one.What), Consequence: view.Safe(one.Consequence), Remedy: view.Safe(one.Remedy),
		})
	}
	if len(l.Findings) == 0 && r.err == nil {
		l.None = "The doctor has found nothing."
	}
	return l
}

func severityClass(s checkup.Severity) string {
	switch s {
	case checkup.Critical:
		return "bad"
	case checkup.Warning:
		return "odd"
	}
	return "calm"
}
