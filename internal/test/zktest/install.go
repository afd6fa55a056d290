package zktest

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/dibslock/dibs/internal/test/spawn"
)

// ErrNoServer means that ZooKeeper or Java is not installed.
var ErrNoServer = errors.New("ZooKeeper or Java is not installed")

// version is the version that scripts/install-server downloads.
const version = "3.9.5"

// Installed reports whether Start finds a server.
func Installed() bool {
	_, _, found := find()
	return found
}

// Jars returns the folder with the jars of ZooKeeper and of the client library Curator.
func Jars() (folder string, ok bool) {
	_, folder, ok = find()
	return folder, ok
}

// find returns the path of Java and the folder of the jars.
func find() (java, jars string, found bool) {
	java, found = spawn.Find("java")
	if !found {
		return "", "", false
	}
	jars, found = jarFolder()
	return java, jars, found
}

// jarFolder returns the folder DIBS_ZOOKEEPER if this variable is set, or the folder of
// scripts/install-server.
func jarFolder() (jars string, found bool) {
	if folder := os.Getenv("DIBS_ZOOKEEPER"); folder != "" {
		return folder, true
	}
	folder := filepath.Join(cache(), "dibs", "servers", "zookeeper-"+version, "lib")
	info, err := os.Stat(folder)
	return folder, err == nil && info.IsDir()
}

// cache returns the folder that the script uses. os.UserCacheDir returns another folder on macOS.
func cache() string {
	if folder := os.Getenv("XDG_CACHE_HOME"); folder != "" {
		return folder
	}
	return filepath.Join(os.Getenv("HOME"), ".cache")
}
