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

// A file that cannot be used is refused with its name and with what to do about it, and is
// left as it is.
func TestUnusable(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		make func(t *testing.T, path string)
		says string
	}{
		{"a directory", func(t *testing.T, path string) { must(t, os.Mkdir(path, 0o700)) }, "name a file"},
		{"a pipe", func(t *testing.T, path string) { must(t, syscall.Mkfifo(path, 0o600)) }, "name a file"},
		{"a text", func(t *testing.T, path string) {
			must(t, os.WriteFile(path, bytes.Repeat([]byte("dear diary\n"), 1000), 0o600))
		}, "not a file of dibs"},
		{"another program's database", func(t *testing.T, path string) {
			alter(t, path, "create table diary (day text)")
		}, "not a file of dibs"},
		{"another program's id", func(t *testing.T, path string) {
			alter(t, path, "pragma application_id = 7")
		}, "not a file of dibs"},
		{"a newer version", func(t *testing.T, path string) {
			must(t, openAt(t, path).Close())
			alter(t, path, "pragma user_version = 3")
		}, "update this program"},
		{"tables that are gone", func(t *testing.T, path string) {
			must(t, openAt(t, path).Close())
			alter(t, path, "drop table state")
		}, "move it and its -wal and -shm away"},
		{"an empty state", func(t *testing.T, path string) {
			must(t, openAt(t, path).Close())
			alter(t, path, "delete from state")
		}, "move it and its -wal and -shm away"},
		{"pages of nonsense", func(t *testing.T, path string) {
			must(t, openAt(t, path).Close())
			scribble(t, path)
		}, "move it and its -wal and -shm away"},
		{"a file on the way", func(t *testing.T, path string) {
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
			before, _ := os.ReadFile(plain(path))
			s, err := Open(path)
			if err == nil {
				t.Fatalf("opened: %v", s.Close())
			}
			if !strings.Contains(err.Error(), path) && !strings.Contains(err.Error(), filepath.Dir(path)) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v: want the file, and %q", err, c.says)
			}
			if after, _ := os.ReadFile(plain(path)); !bytes.Equal(before, after) {
				t.Error("the file was changed")
			}
		})
	}
}

// plain is a path that can be read without waiting.
func plain(path string) string {
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

// alter changes a database behind the back of a store.
func alter(t *testing.T, path, script string) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	must(t, err)
	_, err = db.Exec(script)
	must(t, errors.Join(err, db.Close()))
}

// scribble overwrites all that follows the header.
func scribble(t *testing.T, path string) {
	t.Helper()
	text, err := os.ReadFile(path)
	must(t, err)
	for i := range text[100:] {
		text[100+i] = byte(i*7 + 1)
	}
	must(t, os.WriteFile(path, text, 0o600))
}

// wantRefused checks that an operation was refused for a reason, and so was not done.
func wantRefused(t *testing.T, err error, path, says string) {
	t.Helper()
	var u *dibs.UnavailableError
	if !errors.As(err, &u) || !u.Refused || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), says) {
		t.Errorf("%v: want that it was refused, the file and %q", err, says)
	}
}

// An entry that cannot be read is said to be damaged, and is no free name.
func TestDamagedEntry(t *testing.T) {
	t.Parallel()
	path := newFile(t)
	s := openAt(t, path)
	if _, err := s.Acquire(t.Context(), claimOn("n", "holder")); err != nil {
		t.Fatal(err)
	}
	alter(t, path, `update entries set entry = '{"h":[{"t":"holder"'`)
	_, err := s.Acquire(t.Context(), claimOn("n", "me"))
	wantRefused(t, err, path, "damaged")
	_, err = s.Inspect(t.Context(), "n")
	wantRefused(t, err, path, "damaged")
	takeAndFree(t, s, "other", 0)
}

// A file that was deleted or replaced excludes nobody any more, and says so.
func TestMoved(t *testing.T) {
	t.Parallel()
	path := newFile(t)
	s := openAt(t, path)
	takeAndFree(t, s, "n", 0)
	must(t, os.Rename(path, path+".old"))
	_, err := s.Acquire(t.Context(), claimOn("n", "me"))
	wantRefused(t, err, path, "start this program again")
	openAt(t, path) // makes another
	_, err = s.Acquire(t.Context(), claimOn("n", "me"))
	wantRefused(t, err, path, "start this program again")
}

func TestClosed(t *testing.T) {
	t.Parallel()
	path := newFile(t)
	s := openAt(t, path)
	must(t, s.Close())
	must(t, s.Close())
	_, err := s.Acquire(t.Context(), claimOn("n", "me"))
	wantRefused(t, err, path, "closed")
}

// A user without rights is told of them.
func TestReadOnly(t *testing.T) {
	t.Parallel()
	// Not below t.TempDir(), where a user without rights could not come.
	dir, err := os.MkdirTemp("/tmp", "dibs")
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	binary := filepath.Join(dir, "test")
	text, err := os.ReadFile(os.Args[0])
	must(t, err)
	must(t, os.WriteFile(binary, text, 0o755))
	path := filepath.Join(dir, "locks.db")
	s := openAt(t, path)
	takeAndFree(t, s, "n", 0)
	must(t, s.Close())
	for _, mode := range []os.FileMode{0o444, 0} {
		must(t, os.Chmod(path, mode))
		must(t, os.Chmod(dir, 0o555))
		c := start(t, "write", path, nobody(t), func(c *exec.Cmd) { c.Path = binary })
		if told := c.says("failed:"); !strings.Contains(told, path) || !strings.Contains(told, "right to read and write") {
			t.Errorf("mode %v: %s", mode, told)
		}
	}
	must(t, os.Chmod(dir, 0o755))
	must(t, os.Chmod(path, 0o600))
	takeAndFree(t, openAt(t, path), "n", 0)
}

// On a full disk an operation is refused and was not done. When there is room again, all
// is as it was.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := mountSmall(dir); err != nil {
		t.Skipf("a small disk could not be mounted: %v", err)
	}
	t.Cleanup(func() { must(t, unmount(dir)) })
	path := filepath.Join(dir, "locks.db")
	s, err := Open(path)
	must(t, err)
	t.Cleanup(func() { must(t, s.Close()) })
	held := claimOn("held", "holder")
	answer, err := s.Acquire(t.Context(), held)
	must(t, err)

	fill(t, filepath.Join(dir, "filler"))
	taken := 0
	for ; ; taken++ { // what is in the log already can be written again
		if _, err = s.Acquire(t.Context(), claimOn(strings.Repeat("x", 400)+string(rune('a'+taken)), "me")); err != nil {
			break
		}
		if taken == 1000 {
			t.Fatal("the disk is not full")
		}
	}
	wantRefused(t, err, path, "make room")
	if state, err := s.Inspect(t.Context(), "held"); err != nil || len(state.Holders) != 1 || state.Holders[0].Fence != answer.Fence {
		t.Errorf("on a full disk: %+v, %v", state, err)
	}
	_, err = Open(filepath.Join(dir, "other", "locks.db"))
	if err == nil || !strings.Contains(err.Error(), filepath.Join(dir, "other")) {
		t.Errorf("%v: want to be told of the file", err)
	}
	t.Log(err)

	must(t, os.Remove(filepath.Join(dir, "filler")))
	names, err := s.List(t.Context(), "x*")
	if err != nil || len(names) != taken {
		t.Errorf("%d names, %v: want the %d that were taken", len(names), err, taken)
	}
	if f := takeAndFree(t, s, "n", answer.Fence); f <= answer.Fence {
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

// A call that waits for its turn in this process returns when its context ends.
func TestTurn(t *testing.T) {
	t.Parallel()
	s := openAt(t, newFile(t))
	s.file.turn <- struct{}{}
	defer func() { <-s.file.turn }()
	const limit = 50 * time.Millisecond
	begin := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	_, err := s.Acquire(ctx, claimOn("n", "me"))
	if took := time.Since(begin); !errors.Is(err, dibs.ErrUnavailable) || took < limit || took > 10*time.Second {
		t.Errorf("%v after %v", err, took)
	}
}
