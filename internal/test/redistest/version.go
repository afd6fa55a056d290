package redistest

import (
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"sync"
)

// versions contains each started server program's major version.
var versions sync.Map // by path

var versionText = regexp.MustCompile(`\bv=(\d+)\.`)

// majorVersion returns a server program's major version.
func majorVersion(bin string) (int, error) {
	if known, ok := versions.Load(bin); ok {
		return known.(int), nil
	}
	text, err := exec.Command(bin, "--version").Output()
	if err != nil {
		return 0, fmt.Errorf("redistest: %s --version: %w", bin, err)
	}
	match := versionText.FindSubmatch(text)
	if match == nil {
		return 0, fmt.Errorf("redistest: %s --version: no version in %q", bin, text)
	}
	major, err := strconv.Atoi(string(match[1]))
	if err != nil {
		return 0, err
	}
	versions.Store(bin, major)
	return major, nil
}

// Before7 reports whether the server is older than Redis 7. Valkey is not.
func (s *Server) Before7() bool { return s.major < 7 }
