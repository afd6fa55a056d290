//go:build unix

package localstore

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// tryFlock reports whether it locked f, or whether f cannot be locked at all.
func tryFlock(f *os.File) bool {
	return !errors.Is(flock(f, unix.LOCK_EX|unix.LOCK_NB), unix.EWOULDBLOCK)
}

func waitFlock(f *os.File) { _ = flock(f, unix.LOCK_EX) }

func unflock(f *os.File) { _ = flock(f, unix.LOCK_UN) }

func flock(f *os.File, how int) error {
	for {
		if err := unix.Flock(int(f.Fd()), how); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
