//go:build unix

package localstore

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
)

// An unusable file must be rejected with an error that names it and says what to do. The file
// must not be changed.
func TestUnusable(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		make func(t *testing.T, path string)
		want string
	}{
		{"a directory", func(t *testing.T, path string) { must(t, os.Mkdir(path, 0o700)) }, "choose a regular file"},
		{"a pipe", func(t *testing.T, path string) { must(t, syscall.Mkfifo(path, 0o600)) }, "choose a regular file"},
		{"a text", func(t *testing.T, path string) {
			must(t, os.WriteFile(path, bytes.Repeat([]byte("dear diary\n"), 1000), 0o600))
		}, "not a dibs file"},
		{"another program's database", func(t *testing.T, path string) {
			alter(t, path, "create table diary (day text)")
		}, "not a dibs file"},
		{"another program's id", func(t *testing.T, path string) {
			alter(t, path, "pragma application_id = 7")
		}, "not a dibs file"},
		{"a newer version", func(t *testing.T, path string) {
			must(t, openAt(t, path).Close())
			alter(t, path, "pragma user_version = 3")
		}, "update this program"},
		{"tables that are gone", func(t *testing.T, path string) {
			must(t, openAt(t, path).Close())
			alter(t, path, "drop table state")
		}, "move it aside (with -wal and -shm)"},
		{"an empty state", func(t *testing.T, path string) {
			must(t, openAt(t, path).Close())
			alter(t, path, "delete from state")
		}, "move it aside (with -wal and -shm)"},
		{"pages of nonsense", func(t *testing.T, path string) {
			must(t, openAt(t, path).Close())
			corrupt(t, path)
		}, "move it aside (with -wal and -shm)"},
		{"a file as a directory of the path", func(t *testing.T, path string) {
			dir := filepath.Dir(path)
			must(t, os.Remove(dir))
			must(t, os.WriteFile(dir, nil, 0o600))
		}, "not a directory"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "state", "locks.db")
			must(t, os.Mkdir(filepath.Dir(path), 0o700))
			c.make(t, path)
			before, _ := os.ReadFile(readablePath(path))
			s, err := Open(path)
			if err == nil {
				t.Fatalf("opened: %v", s.Close())
			}
			if !strings.Contains(err.Error(), path) && !strings.Contains(err.Error(), filepath.Dir(path)) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v: want the file name and %q", err, c.want)
			}
			if after, _ := os.ReadFile(readablePath(path)); !bytes.Equal(before, after) {
				t.Error("the file was changed")
			}
		})
	}
}

// readablePath returns path if it can be read without blocking.
func readablePath(path string) string {
	if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
		return ""
	}
	return path
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// alter changes a database without the store.
func alter(t *testing.T, path, script string) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	must(t, err)
	_, err = db.Exec(script)
	must(t, errors.Join(err, db.Close()))
}

// corrupt overwrites everything after the header.
func corrupt(t *testing.T, path string) {
	t.Helper()
	text, err := os.ReadFile(path)
	must(t, err)
	for i := range text[100:] {
		text[100+i] = byte(i*7 + 1)
	}
	must(t, os.WriteFile(path, text, 0o600))
}

// wantRefused checks that an operation was refused with a reason and without effect.
func wantRefused(t *testing.T, err error, path, want string) {
	t.Helper()
	var u *driver.UnavailableError
	if final := want == "restart this program" || want == "closed" || want == "corrupt"; errors.Is(err, driver.ErrDisconnected) != final {
		t.Errorf("%v: want ErrDisconnected: %t", err, final)
	}
	if !errors.As(err, &u) || !u.Refused || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), want) {
		t.Errorf("%v: want Refused, the file name and %q", err, want)
	}
}

// An unreadable entry should be reported as corrupt; its name should not be free.
func TestDamagedEntry(t *testing.T) {
	t.Parallel()
	path := newFile(t)
	s := openAt(t, path)
	if _, err := s.Acquire(t.Context(), requestOn("n", "holder")); err != nil {
		t.Fatal(err)
	}
	alter(t, path, `update entries set entry = '{"h":[{"t":"holder"'`)
	_, err := s.Acquire(t.Context(), requestOn("n", "me"))
	wantRefused(t, err, path, "corrupt")
	_, err = s.Inspect(t.Context(), "n")
	wantRefused(t, err, path, "corrupt")
	lockAndRelease(t, s, "other", 0)
}

// A store returns errors after its file was deleted or replaced, because it excludes no other
// process.
func TestMoved(t *testing.T) {
	t.Parallel()
	path := newFile(t)
	s := openAt(t, path)
	lockAndRelease(t, s, "n", 0)
	must(t, os.Rename(path, path+".old"))
	_, err := s.Acquire(t.Context(), requestOn("n", "me"))
	wantRefused(t, err, path, "restart this program")
	_, err = Open(path) // creates another file
	if err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "end these programs") {
		t.Errorf("%v: want that it is refused while the file is in use", err)
	}
	_, err = s.Acquire(t.Context(), requestOn("n", "me"))
	wantRefused(t, err, path, "restart this program")
	must(t, s.Close())
	lockAndRelease(t, openAt(t, path), "n", 0)
}

func TestClosed(t *testing.T) {
	t.Parallel()
	path := newFile(t)
	s := openAt(t, path)
	must(t, s.Close())
	must(t, s.Close())
	_, err := s.Acquire(t.Context(), requestOn("n", "me"))
	wantRefused(t, err, path, "closed")
}

// A user without permission gets an error that says so.
func TestReadOnly(t *testing.T) {
	t.Parallel()
	// Not below t.TempDir(), which the unprivileged user cannot access.
	dir, err := os.MkdirTemp("/tmp", "dibs")
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	binary := filepath.Join(dir, "test")
	text, err := os.ReadFile(os.Args[0])
	must(t, err)
	must(t, os.WriteFile(binary, text, 0o755))
	path := filepath.Join(dir, "locks.db")
	s := openAt(t, path)
	lockAndRelease(t, s, "n", 0)
	must(t, s.Close())
	for _, mode := range []os.FileMode{0o444, 0} {
		must(t, os.Chmod(path, mode))
		must(t, os.Chmod(dir, 0o555))
		c := startChild(t, "writeOnce", path, asUnprivileged(t), func(c *exec.Cmd) { c.Path = binary })
		if output := c.readLine("failed:"); !strings.Contains(output, path) || !strings.Contains(output, "permission to read and write") {
			t.Errorf("mode %v: %s", mode, output)
		}
	}
	must(t, os.Chmod(dir, 0o755))
	must(t, os.Chmod(path, 0o600))
	lockAndRelease(t, openAt(t, path), "n", 0)
}

// On a full disk an operation fails without effect. When there is room again, nothing is lost.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := mountSmall(dir); err != nil {
		t.Skipf("cannot mount a small disk: %v", err)
	}
	t.Cleanup(func() { must(t, unmount(dir)) })
	path := filepath.Join(dir, "locks.db")
	s, err := Open(path)
	must(t, err)
	t.Cleanup(func() { must(t, s.Close()) })
	held := requestOn("held", "holder")
	answer, err := s.Acquire(t.Context(), held)
	must(t, err)

	fill(t, filepath.Join(dir, "filler"))
	acquired := 0
	for ; ; acquired++ { // the free part of the log can still be written
		if _, err = s.Acquire(t.Context(), requestOn(strings.Repeat("x", 400)+string(rune('a'+acquired)), "me")); err != nil {
			break
		}
		if acquired == 1000 {
			t.Fatal("the disk is not full")
		}
	}
	wantRefused(t, err, path, "make room")
	if state, err := s.Inspect(t.Context(), "held"); err != nil || len(state.Holders) != 1 || state.Holders[0].Fence != answer.Fence {
		t.Errorf("on a full disk: %+v, %v", state, err)
	}
	_, err = Open(filepath.Join(dir, "other", "locks.db"))
	if err == nil || !strings.Contains(err.Error(), filepath.Join(dir, "other")) {
		t.Errorf("%v: want the file name", err)
	}
	t.Log(err)

	must(t, os.Remove(filepath.Join(dir, "filler")))
	names, err := s.List(t.Context(), "x*")
	if err != nil || len(names) != acquired {
		t.Errorf("%d names, %v: want the %d acquired", len(names), err, acquired)
	}
	if f := lockAndRelease(t, s, "n", answer.Fence); f <= answer.Fence {
		t.Errorf("fence %d after %d", f, answer.Fence)
	}
	if held, err := s.Release(t.Context(), driver.ReleaseRequest{Name: "held", Token: held.Token}); !held || err != nil {
		t.Errorf("release: %v, %v", held, err)
	}
}

func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	must(t, err)
	defer f.Close()
	for size := 4096; size > 0; size /= 2 {
		for err = nil; err == nil; {
			_, err = f.Write(make([]byte, size))
		}
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
}

// While a call waits for another operation in this process, it returns when its context ends.
func TestTurn(t *testing.T) {
	t.Parallel()
	s := openAt(t, newFile(t))
	s.file.inUse <- struct{}{}
	defer func() { <-s.file.inUse }()
	const limit = 50 * time.Millisecond
	begin := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	_, err := s.Acquire(ctx, requestOn("n", "me"))
	if took := time.Since(begin); !errors.Is(err, dibs.ErrUnavailable) || took < limit || took > 10*time.Second {
		t.Errorf("%v after %v", err, took)
	}
}
