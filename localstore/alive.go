package localstore

import (
	"strings"
	"sync"

	"github.com/dibslock/dibs/kvstore"
)

// A liveness shows other processes that this process is alive, and detects which others are.
//
// Each store with leases locks a byte in a file, and its entries in the database name this byte as
// their owner. The system drops the lock when the last process that inherited the file ends, even
// by a kill, and at once. So there is nothing to clean up, no process ID can be mistaken for
// another process's, and containers on the same kernel see each other.
//
// An owner counts as dead only if its locked file can be checked. Otherwise leases end at their
// TTL: for example if the file was deleted, or on systems other than Linux.
type liveness struct {
	path string
	boot string

	mu          sync.Mutex
	name        string // this process's owner name, or ""
	fd          int    // not an os.File: it must stay open as long as the process
	unavailable bool   // the process cannot have an owner name
}

// owner returns this process's owner name, and locks its byte the first time. It returns "" if it
// cannot lock a byte.
func (l *liveness) owner() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.name == "" && !l.unavailable {
		var err error
		if l.fd, l.name, err = lockByte(l.path); err != nil {
			l.name, l.unavailable = "", true
			return ""
		}
		l.name += "-" + l.boot
	}
	return l.name
}

// stateOf returns an owner's known state.
func (l *liveness) stateOf(owner string) kvstore.OwnerState {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case owner == "":
		return kvstore.Unknown
	case owner == l.name:
		return kvstore.Alive
	case l.name != "":
		return byteState(owner, l.path, l.fd)
	}
	return byteState(owner, l.path, -1)
}

// known returns an owner's known state. An owner with another boot ID is never known to be dead: it
// may be on another machine, whose locks are not visible here.
func (l *liveness) known(owner string) kvstore.OwnerState {
	state := l.stateOf(owner)
	if state == kvstore.Dead && !strings.HasSuffix(owner, "-"+l.boot) {
		return kvstore.Unknown
	}
	return state
}

func (l *liveness) isDead(owner string) bool { return l.known(owner) == kvstore.Dead }
