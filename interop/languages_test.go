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

// A language has a directory in drivers with a driver for some libraries.
type language struct {
	name      string
	tools     []string   // programs required in PATH
	download  [][]string // commands that need a package registry
	build     [][]string // other commands
	run       []string   // followed by the library and the server's URL
	libraries []library
}

// languages returns the languages in the matrix. Their commands run in a copy of the language's
// directory.
func languages() []language {
	return []language{
		{
			name:  "python",
			tools: []string{"python3"},
			download: [][]string{
				{"python3", "-m", "venv", "venv"},
				{"venv/bin/pip", "install", "--quiet", "--disable-pip-version-check", "--require-hashes", "-r", "requirements.txt"},
			},
			run:       []string{"venv/bin/python", "driver.py"},
			libraries: []library{{name: "redis-py"}, {name: "python-redis-lock", unnotified: true}, {name: "pottery"}},
		},
		{
			name:      "node",
			tools:     []string{"node", "npm"},
			download:  [][]string{{"npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"}},
			run:       []string{"node", "driver.cjs"},
			libraries: []library{{name: "node-redlock"}, {name: "redis-semaphore"}, {name: "node-redisson", otherForm: true}, nodeRedissonMode},
		},
		{
			name:      "rust",
			tools:     []string{"cargo"},
			download:  [][]string{{"cargo", "fetch", "--quiet", "--locked"}},
			build:     [][]string{{"cargo", "build", "--quiet", "--locked", "--offline"}},
			run:       []string{"target/debug/dibs-interop-driver"},
			libraries: []library{{name: "rslock"}},
		},
		{
			name:     "java",
			tools:    []string{"java", "javac", "mvn"},
			download: [][]string{{"mvn", "--batch-mode", "--quiet", "--strict-checksums", "dependency:copy-dependencies", "-DoutputDirectory=lib"}},
			build:    [][]string{{"sh", "-c", "javac --release 17 -cp 'lib/*' -d classes src/main/java/interop/*.java"}},
			run: []string{
				"java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", // for a quick start
				"-cp", "classes:lib/*", "interop.Driver",
			},
			libraries: []library{
				{name: "Spring Integration, spin", driver: "spring-spin"},
				{name: "Spring Integration, pub/sub", driver: "spring-pubsub", unnotified: true},
				{name: "Spring Data Redis, by hand", driver: "spring-template"},
				{name: "Jedis, by hand", driver: "jedis"},
				{name: "ShedLock", driver: "shedlock", lateRelease: deletes, lateExtension: overwrites},
				{name: "ShedLock, safeUpdate", driver: "shedlock-safe"},
				{name: "lock4j"},
				{name: "houbb lock-core", driver: "houbb", breaks: true},
				{name: "Redisson", driver: "redisson", otherForm: true},
				redissonMode,
				fairRedissonMode,
			},
		},
	}
}

// selectVariable names the languages to test:
//
//   - available: those whose tools are installed, and whose libraries can be downloaded
//   - all, or a list such as python,node: these; a language that cannot be tested is a failure
//
// Without it the matrix is skipped: the other tests need nothing but Go and Redis.
const selectVariable = "DIBS_INTEROP"

// A selection is the selection from selectVariable.
type selection struct {
	languages []language
	skips     bool // skips a language that cannot be tested, rather than failing
	skipped   []skipped
}

// A skipped language is not tested.
type skipped struct {
	language
	reason error
}

// report logs the reason, and skips a subtest for each row with the language.
func (s skipped) report(t *testing.T) {
	t.Logf("SKIPPED: %s: %v", s.name, s.reason)
	for _, library := range s.libraries {
		t.Run(library.name, func(t *testing.T) { t.Skipf("SKIPPED: %s", s.name) })
	}
}

// complete reports whether all rows are tested.
func (s selection) complete() bool {
	return len(s.languages) == len(languages()) && len(s.skipped) == 0
}

// selectLanguages returns the selection for selectVariable's value. The function available returns
// an error if a language cannot be tested on this machine.
func selectLanguages(value string, available func(language) error) (selection, error) {
	chosen, err := parseLanguages(value)
	s := selection{skips: value == "available"}
	for _, l := range chosen {
		missing := available(l)
		switch {
		case missing == nil:
			s.languages = append(s.languages, l)
		case s.skips:
			s.skipped = append(s.skipped, skipped{l, missing})
		default:
			err = errors.Join(err, fmt.Errorf("%s: %w", l.name, missing))
		}
	}
	if err != nil {
		return selection{}, fmt.Errorf("%s=%s: %w", selectVariable, value, err)
	}
	return s, nil
}

func parseLanguages(value string) ([]language, error) {
	known := languages()
	if value == "available" || value == "all" {
		return known, nil
	}
	var chosen []language
	for name := range strings.SplitSeq(value, ",") {
		at := slices.IndexFunc(known, func(l language) bool { return l.name == name })
		if at < 0 {
			return nil, fmt.Errorf("no language %q: use available, all, or a list of languages", name)
		}
		chosen = append(chosen, known[at])
	}
	return chosen, nil
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
		selected int
		skipped  bool
		err      string
	}{
		"available":   {selected: len(languages()) - 1, skipped: true},
		"python":      {selected: 1},
		"python,java": {selected: 2},
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
		if err != nil || len(s.languages) != want.selected || (len(s.skipped) == 1) != want.skipped || s.complete() {
			t.Errorf("%s: %+v, %v; want %d languages", value, s, err, want.selected)
		}
	}
	s, err := selectLanguages("all", func(language) error { return nil })
	if err != nil || !s.complete() {
		t.Errorf("all: %+v, %v; want a complete selection", s, err)
	}
}

// available returns an error if a tool for a language is missing.
func available(l language) error {
	for _, tool := range l.tools {
		if _, err := exec.LookPath(tool); err != nil {
			return err
		}
	}
	return nil
}

// errDownload is the error from prepare if it cannot download the libraries.
var errDownload = errors.New("download the libraries")

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
	if err := l.install(t, unfinished); err != nil {
		return "", err
	}
	err = os.Rename(unfinished, installed)
	if errors.Is(err, fs.ErrExist) {
		err = nil // another process was faster
	}
	return installed, err
}

func (l language) install(t *testing.T, dir string) error {
	if err := runAll(t, dir, l.download); err != nil {
		return fmt.Errorf("%w: %w", errDownload, err)
	}
	return runAll(t, dir, l.build)
}

// Only a failed download should skip a language: a driver that cannot be built is a failure.
func TestInstallFails(t *testing.T) {
	t.Parallel()
	good, bad := [][]string{{"true"}}, [][]string{{"true"}, {"sh", "-c", "echo no route >&2; exit 1"}}
	for what, c := range map[string]struct {
		language
		download, fails bool
	}{
		"none":     {language{download: good, build: good}, false, false},
		"download": {language{download: bad, build: good}, true, true},
		"build":    {language{download: good, build: bad}, false, true},
	} {
		err := c.install(t, t.TempDir())
		if (err != nil) != c.fails || errors.Is(err, errDownload) != c.download || c.fails && !strings.Contains(err.Error(), "no route") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func runAll(t *testing.T, dir string, commands [][]string) error {
	for _, command := range commands {
		cmd := exec.CommandContext(t.Context(), command[0], command[1:]...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", strings.Join(command, " "), err, out)
		}
	}
	return nil
}

// hash returns a hash of all files' names and contents.
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
