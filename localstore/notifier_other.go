//go:build !unix

package localstore

import (
	"io/fs"
	"net"
)

// This system lacks datagrams between processes: waiters poll.

func isPrivate(fs.FileInfo) bool { return false }

func listen(string) (*net.UnixConn, error) { return nil, errNoNotifier }

func sendDatagram(string, []byte) error { return errNoNotifier }

func noListener(error) bool { return false }
