package dashboard

import (
	"fmt"
	"strconv"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/view"
	"github.com/dibslock/dibs/internal/waitgraph"
)

// A processList is the processes of one page, with what each holds and waits for.
type processList struct {
	Processes []processView
	Pages     pages
	Only      string // the process that the query selects
	Empty     string
	Part      string // of which names these are, if not of all
}

type processView struct {
	Name         string
	Link         string
	ID           string // distinguishes clients with the same address
	Holds, Waits []entryRow
	HoldsMore    int // entries that are not listed
	WaitsMore    int
	HoldsAll     string // how many there are
	WaitsAll     string
}

type entryRow struct {
	Name, Link   string
	Kind, Weight string
	Label        string
	More         string // the TTL, or how long it has waited
	Reserved     bool
}

// The most entries of a process on a page of many processes, and on that of one.
const (
	someEntries = 10
	manyEntries = 1000
)

func processListOf(f *frame, q query) processList {
	found, most := f.graph.Processes, someEntries
	l := processList{Only: view.Safe(q.process), Empty: "No process holds or waits for anything."}
	if rest := f.snapshot.Rest; rest != nil {
		l.Part = fmt.Sprintf("Of %d names, only those with waiters and those on display are read: the processes have more.", len(rest.Names))
	}
	if q.process != "" {
		l.Empty, most = "This process holds nothing, and waits for nothing.", manyEntries
		found = withAddress(found, q.process)
	}
	l.Pages = pagesOf(q, len(found))
	for _, p := range pageOf(l.Pages, found) {
		l.Processes = append(l.Processes, processViewOf(p, most))
	}
	return l
}

func withAddress(all []waitgraph.Process, address string) (found []waitgraph.Process) {
	for _, p := range all {
		if addressOf(p.Host, p.PID) == address {
			found = append(found, p)
		}
	}
	return found
}

// addressOf returns the address of a process: host:pid. Several clients of a process have
// the same.
func addressOf(host string, pid int) string { return host + ":" + strconv.Itoa(pid) }

// processText returns the address of a process, safe to print.
func processText(p waitgraph.Process) string { return view.Safe(p.String()) }

func processViewOf(p waitgraph.Process, most int) processView {
	v := processView{
		Name: processText(p), Link: processLink(addressOf(p.Host, p.PID)), ID: view.Safe(p.ID),
		HoldsMore: max(0, len(p.Holds)-most), WaitsMore: max(0, len(p.Waits)-most),
		HoldsAll: fmt.Sprint(len(p.Holds)), WaitsAll: fmt.Sprint(len(p.Waits)),
	}
	for _, e := range p.Holds[:min(len(p.Holds), most)] {
		row := entryRowOf(e, e.Weight == 0)
		row.More = view.Brief(e.Remaining)
		v.Holds = append(v.Holds, row)
	}
	for _, e := range p.Waits[:min(len(p.Waits), most)] {
		row := entryRowOf(e, e.Weight == e.Limit)
		row.More = fmt.Sprintf("%s, position %d", view.Brief(e.Waited), e.Position)
		v.Waits = append(v.Waits, row)
	}
	return v
}

func entryRowOf(e waitgraph.Entry, exclusive bool) entryRow {
	r := entryRow{Name: view.Safe(e.Name), Link: nameLink(e.Name), Kind: string(e.Kind), Label: view.Safe(e.Label), Reserved: e.Reserved}
	if e.Kind == driver.KindSemaphore && !exclusive {
		r.Weight = weightText(e.Weight, e.Limit, false)
	}
	return r
}
