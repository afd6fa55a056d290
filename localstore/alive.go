package localstore

import (
	"strings"
	"sync"
)

// A liveness shows to other processes that this one lives, and to this one whether others do.
// Each store that takes something locks a byte of one file, and the entries in the database
// name the byte: its owner. The system drops the lock when the last process ends that has
// inherited the file, however that ends: by a kill, too, and at once. Nothing has to be cleaned
// up, no process number can be mistaken for that of another process, and containers of one
// kernel see each other.
//
// An owner is known to be dead only if its very file can be looked at. Otherwise, as when
// somebody has deleted the file, or on systems other than Linux, leases end with their TTL.
type liveness struct {
	path string
	boot string

	mu   sync.Mutex
	name string // of this process as an owner; "" if it is none
	fd   int    // not an os.File: it must live as long as the process
	none bool   // it cannot be one
}

// What is known of an owner.
type life int

const (
	unknown life = iota
	alive
	ended
)

// owner returns the name of this process, which is locked from then on, or "".
func (l *liveness) owner() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.name == "" && !l.none {
		var err error
		if l.fd, l.name, err = lockByte(l.path); err != nil {
			l.name, l.none = "", true
			return ""
		}
		l.name += "-" + l.boot
	}
	return l.name
}

// of says what is known of an owner.
func (l *liveness) of(owner string) life {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case owner == "":
		return unknown
	case owner == l.name:
		return alive
	case l.name != "":
		return byteOf(owner, l.path, l.fd)
	}
	return byteOf(owner, l.path, -1)
}

// dead reports whether an owner is known to be dead. Of one of another boot id it is not: it
// may be on another machine, whose locks this one does not see.
func (l *liveness) dead(owner string) bool {
	return strings.HasSuffix(owner, "-"+l.boot) && l.of(owner) == ended
}
