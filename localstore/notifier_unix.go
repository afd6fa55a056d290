//go:build unix

package localstore

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"syscall"
)

// isPrivate reports whether only this user can access a directory.
func isPrivate(dir fs.FileInfo) bool {
	of, ok := dir.Sys().(*syscall.Stat_t)
	return ok && dir.IsDir() && dir.Mode().Perm()&0o077 == 0 && int(of.Uid) == os.Geteuid()
}

func listen(path string) (*net.UnixConn, error) {
	_ = os.Remove(path) // from an earlier Watch
	return net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
}

// sendDatagram sends a datagram without blocking, or nothing if text is nil. The datagram
// is lost if the receiver's queue is full.
func sendDatagram(path string, text []byte) error {
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		return err
	}
	defer conn.Close()
	if text == nil {
		return nil
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var sent error
	err = raw.Write(func(fd uintptr) bool {
		_, sent = syscall.Write(int(fd), text)
		return true
	})
	return errors.Join(err, sent)
}

// noListener reports whether err means that no process listens at the socket.
func noListener(err error) bool { return errors.Is(err, syscall.ECONNREFUSED) }
