package dashboard

import (
	"fmt"
	"strconv"

	"github.com/dibslock/dibs/dashboard/view"
	"github.com/dibslock/dibs/dashboard/waitgraph"
)

// A processList contains a page's processes, with their leases and waits.
type processList struct {
	Processes []waitgraph.Process
	Entries   int // the most entries for each process
	Pages     pages
	Only      string // the process that the query selects
	Empty     string
	Part      string // which names these come from, if not all
}

// The most entries for a process on a page with many processes, and on a page with a single
// process.
const (
	someEntries = 10
	manyEntries = 1000
)

func processListOf(f *frame, q query) processList {
	found := f.graph.Processes
	l := processList{Entries: someEntries, Only: view.Safe(q.process), Empty: "No process holds or waits for anything."}
	if rest := f.snapshot.Rest; rest != nil {
		l.Part = fmt.Sprintf("Of %d names, only those with waiters and those on display are read: the processes have more.", len(rest.Names))
	}
	if q.process != "" {
		l.Empty, l.Entries = "This process holds nothing, and waits for nothing.", manyEntries
		found = withAddress(found, q.process)
	}
	l.Pages = pagesOf(q, len(found))
	l.Processes = pageOf(l.Pages, found)
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

// addressOf returns a process's address: host:pid. A process's clients all have the same address.
func addressOf(host string, pid int) string { return host + ":" + strconv.Itoa(pid) }

// processText returns a process's address, safe to print.
func processText(p waitgraph.Process) string { return view.Safe(p.String()) }

// linkOf returns the link to a process.
func linkOf(p waitgraph.Process) string { return processLink(addressOf(p.Host, p.PID)) }
