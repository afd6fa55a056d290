package etcdtest

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/dibslock/dibs/internal/test/spawn"
)

// ErrNoServer means that etcd is not installed.
var ErrNoServer = errors.New("etcd is not installed")

// Version is the version that scripts/install-server builds.
const Version = "3.7.3"

// Installed reports whether Start finds a server.
func Installed() bool {
	_, found := find("etcd")
	return found
}

// Ctl returns the path of etcdctl.
func Ctl() (path string, ok bool) { return find("etcdctl") }

// find returns the path of a program: in the folder DIBS_ETCD if this variable is set, in the folder
// of scripts/install-server, or in PATH.
func find(name string) (path string, found bool) {
	if folder := os.Getenv("DIBS_ETCD"); folder != "" {
		return filepath.Join(folder, name), true
	}
	if path := filepath.Join(cache(), "dibs", "servers", "etcd-"+Version, name); executable(path) {
		return path, true
	}
	return spawn.Find(name)
}

// cache returns the folder that the script uses. os.UserCacheDir returns another folder on macOS.
func cache() string {
	if folder := os.Getenv("XDG_CACHE_HOME"); folder != "" {
		return folder
	}
	return filepath.Join(os.Getenv("HOME"), ".cache")
}

func executable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}
