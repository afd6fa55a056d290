//go:build !unix

package localstore

import (
	"io/fs"
	"net"
)

// This system has no datagrams between processes: waiters poll.

func private(fs.FileInfo) bool { return false }

func listen(string) (*net.UnixConn, error) { return nil, errNoPost }

func throw(string, []byte) error { return errNoPost }

func dead(error) bool { return false }
