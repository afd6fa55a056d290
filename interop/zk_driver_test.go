//go:build unix

package interop

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dibslock/dibs/internal/test/zktest"
)

// A zkDriver runs workers of a library in another language. See drivers/README.md, "ZooKeeper".
type zkDriver struct {
	language
	available func(t *testing.T, l language, err error) // skips or fails a test

	mu  sync.Mutex
	dir string // where it is installed
}

func curatorDriver() *zkDriver {
	jars, _ := zktest.Jars()
	jars = filepath.Join(jars, "*")
	return &zkDriver{available: needCurator, language: language{
		name:  "curator",
		tools: []string{"java", "javac"},
		build: [][]string{{"javac", "--release", "17", "-cp", jars, "-d", "classes", "Curator.java"}},
		run: []string{
			"java", "-Xmx64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData",
			"-Dorg.slf4j.simpleLogger.defaultLogLevel=off", "-cp", "classes:" + jars, "Curator",
		},
	}}
}

func kazooDriver() *zkDriver {
	python := languages()[slices.IndexFunc(languages(), func(l language) bool { return l.name == "python" })]
	return &zkDriver{available: needKazoo, language: language{name: "kazoo", tools: python.tools, download: python.download, run: python.run}}
}

func needCurator(t *testing.T, _ language, err error) {
	t.Helper()
	if errors.Is(err, exec.ErrNotFound) && os.Getenv("DIBS_REQUIRE_ZOOKEEPER") == "" {
		t.Skipf("SKIPPED: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// needKazoo skips a test as the matrix skips Python.
func needKazoo(t *testing.T, _ language, err error) {
	t.Helper()
	value := os.Getenv(selectVariable)
	if value == "" {
		t.Skipf("SKIPPED: it downloads a library of Python: set %s=available, or see drivers/README.md", selectVariable)
	}
	chosen, err2 := parseLanguages(value)
	if err2 != nil {
		t.Fatal(err2)
	}
	if !slices.ContainsFunc(chosen, func(l language) bool { return l.name == "python" }) {
		t.Skipf("SKIPPED: %s has no python", selectVariable)
	}
	if value == "available" && (errors.Is(err, exec.ErrNotFound) || errors.Is(err, errDownload)) {
		t.Skipf("SKIPPED: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// prepare installs the driver, or skips the test.
func (d *zkDriver) prepare(t *testing.T) {
	t.Helper()
	d.available(t, d.language, available(d.language))
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.dir != "" {
		return
	}
	dir, err := d.language.prepare(t)
	d.available(t, d.language, err)
	d.dir = dir
}

// side returns the side of a recipe: a process with all workers, and processes as victims.
func (d *zkDriver) side(recipe string) side {
	return side{
		prepare: d.prepare,
		turns: func(r *pairRun, t *testing.T) []turn {
			t.Helper()
			return []turn{func(ctx context.Context) error { return d.work(ctx, t, r) }}
		},
		victim: func(p process) *exec.Cmd { return d.command(p, p.mode, 1) },
		part:   recipe,
		worker: recipe + "-worker",
		start:  time.Second,
	}
}

// command returns the command of a process with workers. Its standard input keeps it working.
func (d *zkDriver) command(p process, m mode, workers int) *exec.Cmd {
	args := []any{p.part, p.server, p.path(), p.ttl.Milliseconds(), p.judge, p.side, p.id, m, p.inside.Milliseconds(), workers}
	words := slices.Clone(d.run)
	for _, a := range args {
		words = append(words, fmt.Sprint(a))
	}
	cmd := groupCommand(words)
	cmd.Dir = d.dir
	return cmd
}

// work lets workers work until ctx ends. The first line of their process is the version.
func (d *zkDriver) work(ctx context.Context, t *testing.T, r *pairRun) error {
	t.Helper()
	m := exclusive
	if r.shares {
		m = "any"
	}
	cmd := d.command(r.process(1, r.theirs.worker, pairWork, workerTTL), m, pairWorkers)
	errs := new(tail)
	cmd.Stderr = errs
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() {
		_ = stdin.Close()
		time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
	})
	defer stop()
	lines := bufio.NewScanner(stdout)
	if lines.Scan() {
		r.version, r.runtime, _ = strings.Cut(lines.Text(), " ")
	}
	for lines.Scan() {
	}
	err = cmp.Or(cmd.Wait(), lines.Err())
	if err != nil && ctx.Err() != nil { // repeat ignores errors after the end of ctx
		t.Errorf("%s did not end by itself: %v: %s", d.name, err, errs)
	}
	if err != nil || ctx.Err() == nil {
		return fmt.Errorf("%s: %w: %s", d.name, cmp.Or(err, errors.New("it ended")), errs)
	}
	return nil
}
