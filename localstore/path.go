package localstore

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
)

// Path returns the file for a user's locks on this host: $XDG_STATE_HOME/dibs/HOST.db, or
// $HOME/.local/state/dibs/HOST.db if XDG_STATE_HOME is no absolute path. HOST is the host's name,
// because hosts can share a home directory. Without HOME, as in some cron jobs, it uses the home
// directory in the user database. getenv is os.Getenv or a replacement.
//
// Two users have different files and do not exclude each other. Neither do two processes
// with different values of these variables.
func Path(getenv func(string) string) (string, error) {
	// The XDG standard requires ignoring relative paths. They would also name another file in each
	// directory.
	if state := getenv("XDG_STATE_HOME"); filepath.IsAbs(state) {
		return filepath.Join(state, "dibs", hostFile()), nil
	}
	home := getenv("HOME")
	if !filepath.IsAbs(home) {
		var err error
		if home, err = homeOf(os.Getuid()); err != nil {
			return "", fmt.Errorf("dibs: no directory for local locks: set HOME or XDG_STATE_HOME, or choose a file: %w", err)
		}
	}
	return filepath.Join(home, ".local", "state", "dibs", hostFile()), nil
}

// hostFile returns this host's file name.
func hostFile() string {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "localhost"
	}
	plain := func(r rune) rune {
		if r == '-' || r == '.' || r == '_' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' {
			return r
		}
		return '_'
	}
	const longest = 64
	host = strings.TrimLeft(strings.Map(plain, host), ".")
	return host[:min(len(host), longest)] + ".db"
}

var errNoHome = errors.New("the user of this process has no home directory")

func homeOf(uid int) (string, error) {
	u, err := user.LookupId(strconv.Itoa(uid))
	if err != nil {
		return "", fmt.Errorf("%w: %w", errNoHome, err)
	}
	if !filepath.IsAbs(u.HomeDir) {
		return "", errNoHome
	}
	return u.HomeDir, nil
}
