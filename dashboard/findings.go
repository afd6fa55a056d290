package dashboard

import (
	"github.com/dibslock/dibs/checkup"
	"github.com/dibslock/dibs/dashboard/view"
)

// A findingList contains a doctor's findings.
type findingList struct {
	At       string
	Findings []view.Finding
	Err      string
	None     string // why there are no findings
}

func (h *handler) findingsOf(f *frame, r *report) findingList {
	switch {
	case h.config.Doctor == nil:
		return findingList{None: "This dashboard has no doctor."}
	case r == nil:
		return findingList{None: "The first check is running."}
	}
	l := findingList{At: clock(r.at, f.snapshot.At), Findings: view.FindingsOf(r.findings)}
	if r.err != nil {
		l.Err = view.Safe(view.ErrorText(r.err))
	}
	if len(l.Findings) == 0 && r.err == nil {
		l.None = "The doctor has found nothing."
	}
	return l
}

func severityClass(severity string) string {
	switch severity {
	case checkup.Critical.String():
		return "bad"
	case checkup.Warning.String():
		return "odd"
	}
	return "calm"
}
