package doctor

import (
	"fmt"
	"slices"

	"github.com/dibslock/dibs/checkup"
)

// A flaw is how versions before the fix can lose changes.
type flaw struct {
	from, until []int // affected: from <= version < until
	issue       string
}

// The flaws are in the release notes of ZooKeeper.
var flaws = []flaw{
	{[]int{3, 5, 0}, []int{3, 8, 5}, "ZOOKEEPER-4785"},
	{[]int{3, 9, 0}, []int{3, 9, 2}, "ZOOKEEPER-4785"},
	{[]int{3, 9, 3}, []int{3, 9, 4}, "ZOOKEEPER-4925"},
}

// flawOf returns the issue about changes that a version can lose.
func flawOf(version []int) string {
	for _, f := range flaws {
		if slices.Compare(version, f.from) >= 0 && slices.Compare(version, f.until) < 0 {
			return f.issue
		}
	}
	return ""
}

func (e *examination) checkVersion(s *server) {
	text, found := s.field("srvr", "Zookeeper version")
	if !found {
		return // checkWords reports it
	}
	version := make([]int, 3)
	if _, err := fmt.Sscanf(text, "%d.%d.%d", &version[0], &version[1], &version[2]); err != nil {
		e.at(s, checkup.If(true, checkup.Unchecked, "version", fmt.Sprintf("the version %q", text), "it may be too old", "use ZooKeeper 3.9.4 or later"))
		return
	}
	shown := fmt.Sprintf("ZooKeeper %d.%d.%d", version[0], version[1], version[2])
	if slices.Compare(version, []int{3, 5}) < 0 {
		e.at(s, checkup.If(true, checkup.Critical, "version", shown+" has no containers", noLocks, "upgrade to ZooKeeper 3.9.4 or later"))
		return
	}
	issue := flawOf(version)
	e.at(s, checkup.If(issue != "", checkup.Warning, "version", shown+" has the flaw "+issue,
		"a server that rejoins can lose changes; if it then leads, a lock is free although a client holds it", "upgrade to ZooKeeper 3.9.4 or later, or to 3.8.5"))
}
