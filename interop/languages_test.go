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
	libraries []string
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
			libraries: []string{"redis-py", "python-redis-lock", "pottery"},
		},
		{
			name:      "node",
			tools:     []string{"node", "npm"},
			install:   [][]string{{"npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"}},
			run:       []string{"node", "driver.cjs"},
			libraries: []string{"node-redlock", "redis-semaphore"},
		},
	}
}

const selectVariable = "DIBS_INTEROP"

// selected returns the languages that DIBS_INTEROP selects, and skips the test if it is
// not set. The value 1 selects the languages that are installed. The value all, or a list
// of languages, makes the test fail if one of them is not installed.
func selected(t *testing.T) []language {
	t.Helper()
	value := os.Getenv(selectVariable)
	switch value {
	case "":
		t.Skipf("SKIPPED: it needs Python and Node.js, and downloads their libraries: set %s=1", selectVariable)
	case "1":
		return slices.DeleteFunc(languages(), func(l language) bool {
			err := l.available()
			if err != nil {
				t.Logf("SKIPPED: %s: %v", l.name, err)
			}
			return err != nil
		})
	case "all":
		value = strings.Join(names(languages()), ",")
	}
	var found []language
	for name := range strings.SplitSeq(value, ",") {
		at := slices.Index(names(languages()), name)
		if at < 0 {
			t.Fatalf("%s=%s: no language %q: use 1, all, or a list of %q", selectVariable, value, name, names(languages()))
		}
		l := languages()[at]
		if err := l.available(); err != nil {
			t.Fatalf("%s=%s: %s: %v", selectVariable, value, name, err)
		}
		found = append(found, l)
	}
	return found
}

func names(languages []language) []string {
	var names []string
	for _, l := range languages {
		names = append(names, l.name)
	}
	return names
}

// available returns an error if a tool of the language is missing.
func (l language) available() error {
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
