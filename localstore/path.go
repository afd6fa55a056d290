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

// Path returns the file of a user's locks on this host: $XDG_STATE_HOME/dibs/HOST.db, else
// $HOME/.local/state/dibs/HOST.db, where HOST is the host's name: hosts may share a home.
// Where there is no HOME, as in some cron jobs, it is the
// home directory that the system knows of the user of this process. getenv is os.Getenv,
// or stands for it.
//
// Two users have two files, and do not exclude each other. Nor do two processes with
// different settings of these variables.
func Path(getenv func(string) string) (string, error) {
	// The standard has relative paths ignored, and they would name another file in each
	// directory.
	if state := getenv("XDG_STATE_HOME"); filepath.IsAbs(state) {
		return filepath.Join(state, "dibs", hostFile()), nil
	}
	home := getenv("HOME")
	if !filepath.IsAbs(home) {
		var err error
		if home, err = homeOf(os.Getuid()); err != nil {
			return "", fmt.Errorf("dibs: no place for local locks: set HOME or XDG_STATE_HOME, or name a file: %w", err)
		}
	}
	return filepath.Join(home, ".local", "state", "dibs", hostFile()), nil
}

// hostFile is the name of this host's file.
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
