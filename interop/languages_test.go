package interop

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A language has a directory in drivers with one driver for some libraries.
type language struct {
	name      string
	tools     []string // programs that have to be in PATH
	install   [][]string
	run       []string // followed by the library and the URL of the server
	libraries []library
}

// languages returns the languages of the matrix. Their commands run in a copy of the
// directory of the language.
func languages() []language {
	return []language{
		{
			name:  "python",
			tools: []string{"python3"},
			install: [][]string{
				{"python3", "-m", "venv", "venv"},
				{"venv/bin/pip", "install", "--quiet", "--disable-pip-version-check", "--require-hashes", "-r", "requirements.txt"},
			},
			run:       []string{"venv/bin/python", "driver.py"},
			libraries: []library{{name: "redis-py"}, {name: "python-redis-lock"}, {name: "pottery"}},
		},
		{
			name:      "node",
			tools:     []string{"node", "npm"},
			install:   [][]string{{"npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"}},
			run:       []string{"node", "driver.cjs"},
			libraries: []library{{name: "node-redlock"}, {name: "redis-semaphore"}, {name: "node-redisson", otherForm: true}},
		},
		{
			name:      "rust",
			tools:     []string{"cargo"},
			install:   [][]string{{"cargo", "build", "--quiet", "--locked"}},
			run:       []string{"target/debug/dibs-interop-driver"},
			libraries: []library{{name: "rslock"}},
		},
		{
			name:  "java",
			tools: []string{"java", "javac", "mvn"},
			install: [][]string{{
				"mvn", "--batch-mode", "--quiet", "--strict-checksums",
				"compile", "dependency:copy-dependencies", "-DoutputDirectory=target/lib",
			}},
			run: []string{
				"java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", // for a quick start
				"-cp", "target/classes:target/lib/*", "interop.Driver",
			},
			libraries: []library{
				{name: "Spring Integration, spin", driver: "spring-spin"},
				{name: "Spring Integration, pub/sub", driver: "spring-pubsub"},
				{name: "Spring Data Redis, by hand", driver: "spring-template"},
				{name: "Jedis, by hand", driver: "jedis"},
				{name: "ShedLock", driver: "shedlock", lateRelease: deletes, lateExtension: overwrites},
				{name: "ShedLock, safeUpdate", driver: "shedlock-safe"},
				{name: "lock4j"},
				{name: "houbb lock-core", driver: "houbb", breaks: "it never returns a connection to its pool"},
				{name: "Redisson", driver: "redisson", otherForm: true},
			},
		},
	}
}

// selectVariable has the languages that are tested:
//
//   - 1: those whose tools are installed
//   - all, or a list such as python,node: these; a missing tool is a failure
//
// Without it the matrix is skipped: the other tests need nothing but Go and Redis.
const selectVariable = "DIBS_INTEROP"

// A selection is what selectVariable selects.
type selection struct {
	languages []language
	skipped   map[string]error // a language, and why it is skipped
}

// selectLanguages returns the selection for a value of selectVariable. The function
// available returns an error for a language that cannot be tested on this machine.
func selectLanguages(value string, available func(language) error) (selection, error) {
	s := selection{skipped: make(map[string]error)}
	known := languages()
	if value == "1" || value == "all" {
		for _, l := range known {
			err := available(l)
			switch {
			case err == nil:
				s.languages = append(s.languages, l)
			case value == "1":
				s.skipped[l.name] = err
			default:
				return selection{}, fmt.Errorf("%s=%s: %s: %w", selectVariable, value, l.name, err)
			}
		}
		return s, nil
	}
	for name := range strings.SplitSeq(value, ",") {
		at := slices.IndexFunc(known, func(l language) bool { return l.name == name })
		if at < 0 {
			return selection{}, fmt.Errorf("%s=%s: no language %q: use 1, all, or a list of languages", selectVariable, value, name)
		}
		if err := available(known[at]); err != nil {
			return selection{}, fmt.Errorf("%s=%s: %s: %w", selectVariable, value, name, err)
		}
		s.languages = append(s.languages, known[at])
	}
	return s, nil
}

func TestSelectLanguages(t *testing.T) {
	t.Parallel()
	errMissing := errors.New("not installed")
	withoutNode := func(l language) error {
		if l.name == "node" {
			return errMissing
		}
		return nil
	}
	for value, want := range map[string]struct {
		selected string
		skipped  bool
		err      string
	}{
		"1":           {selected: "python", skipped: true},
		"python":      {selected: "python"},
		"all":         {err: "node: not installed"},
		"node":        {err: "node: not installed"},
		"python,node": {err: "node: not installed"},
		"cobol":       {err: `no language "cobol"`},
		"python,":     {err: `no language ""`},
	} {
		s, err := selectLanguages(value, withoutNode)
		if want.err != "" {
			if err == nil || !strings.Contains(err.Error(), want.err) {
				t.Errorf("%s: error %v, want one with %q", value, err, want.err)
			}
			continue
		}
		if err != nil || len(s.languages) != 1 || s.languages[0].name != want.selected || (s.skipped["node"] != nil) != want.skipped {
			t.Errorf("%s: %+v, %v; want %q", value, s, err, want.selected)
		}
	}
}

// available returns an error if a tool of a language is missing.
func available(l language) error {
	for _, tool := range l.tools {
		if _, err := exec.LookPath(tool); err != nil {
			return err
		}
	}
	return nil
}

// prepare returns a directory below the user's cache directory, in which the driver and
// its libraries are installed. It is kept: the next run uses it again.
func (l language) prepare(t *testing.T) (string, error) {
	t.Helper()
	source := os.DirFS(filepath.Join("drivers", l.name))
	sum, err := hash(source)
	if err != nil {
		return "", err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	cache = filepath.Join(cache, "dibs-interop")
	installed := filepath.Join(cache, l.name+"-"+sum)
	if _, err := os.Stat(installed); err == nil {
		return installed, nil
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", err
	}
	unfinished, err := os.MkdirTemp(cache, "unfinished-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(unfinished)
	if err := os.CopyFS(unfinished, source); err != nil {
		return "", err
	}
	for _, command := range l.install {
		cmd := exec.CommandContext(t.Context(), command[0], command[1:]...)
		cmd.Dir = unfinished
		if out, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("%s: %w: %s", strings.Join(command, " "), err, out)
		}
	}
	err = os.Rename(unfinished, installed)
	if errors.Is(err, fs.ErrExist) {
		err = nil // another process was faster
	}
	return installed, err
}

// hash returns a hash of the names and contents of all files.
func hash(files fs.FS) (string, error) {
	sum := sha256.New()
	err := fs.WalkDir(files, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := fs.ReadFile(files, path)
		fmt.Fprintf(sum, "%q %q\n", path, content)
		return err
	})
	return fmt.Sprintf("%x", sum.Sum(nil)[:8]), err
}
