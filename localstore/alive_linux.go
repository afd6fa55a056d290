package localstore

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"

	"github.com/dibslock/dibs/kvstore"
	"golang.org/x/sys/unix"
)

// lockByte locks a free byte of a file and returns its name: the file's inode and the
// offset. While the byte is locked, no other file can have this inode.
func lockByte(path string) (fd int, name string, err error) {
	const tries = 10
	if fd, err = openAgain(path, unix.O_RDWR|unix.O_CREAT); err != nil {
		return -1, "", err
	}
	for range tries {
		at := 1 + rand.Int64N(1<<62)
		lock := unix.Flock_t{Type: unix.F_WRLCK, Start: at, Len: 1}
		if err = unix.FcntlFlock(uintptr(fd), unix.F_OFD_SETLK, &lock); err == nil {
			return fd, fmt.Sprintf("%x-%x", inode(fd), at), nil
		}
	}
	_ = unix.Close(fd)
	return -1, "", err
}

// byteState checks whether an owner's byte is locked. It uses fd for the owner's own file, and
// opens path otherwise.
func byteState(owner, path string, fd int) kvstore.OwnerState {
	var node uint64
	lock := unix.Flock_t{Type: unix.F_WRLCK, Len: 1}
	if _, err := fmt.Sscanf(owner, "%x-%x", &node, &lock.Start); err != nil {
		return kvstore.Unknown
	}
	if fd < 0 || inode(fd) != node {
		var err error
		if fd, err = openAgain(path, unix.O_RDONLY); err != nil {
			return kvstore.Unknown
		}
		defer unix.Close(fd)
	}
	if inode(fd) != node || unix.FcntlFlock(uintptr(fd), unix.F_OFD_GETLK, &lock) != nil {
		return kvstore.Unknown
	}
	if lock.Type == unix.F_UNLCK {
		return kvstore.Dead
	}
	return kvstore.Alive
}

func openAgain(path string, how int) (fd int, err error) {
	for {
		if fd, err = unix.Open(path, how|unix.O_CLOEXEC, 0o600); !errors.Is(err, unix.EINTR) {
			return fd, err
		}
	}
}

func inode(fd int) uint64 {
	var stat unix.Stat_t
	if unix.Fstat(fd, &stat) != nil {
		return 0
	}
	return stat.Ino
}

// file returns the liveness file, for child processes to inherit.
func (l *liveness) file() (*os.File, error) {
	if l.owner() == "" {
		return nil, nil
	}
	fd, err := unix.FcntlInt(uintptr(l.fd), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), l.path), nil
}

// close ends the owner after its leases ended.
func (l *liveness) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.name != "" {
		_ = unix.Close(l.fd)
	}
	l.name, l.unavailable = "", true
}
