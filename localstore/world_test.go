//go:build unix

package localstore

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dibslock/dibs"
)

// holdUntilLost holds the lock until its lease is lost, and reports why.
func holdUntilLost(path string, _ *bufio.Reader) error {
	s, err := Open(path)
	if err != nil {
		return err
	}
	lease, err := dibs.New(s).Mutex("n").Lock(context.Background(), dibs.TTL(time.Hour))
	if err != nil {
		return err
	}
	fmt.Println("holds")
	<-lease.Context().Done()
	fmt.Println("lost", lease.Err())
	select {} // until the test kills it
}

// tryOnce reports whether it can acquire the lock.
func tryOnce(path string, _ *bufio.Reader) error {
	s, err := Open(path)
	if err != nil {
		fmt.Println("refused:", err)
		return nil
	}
	_, err = dibs.New(s).Mutex("n").TryLock(context.Background())
	switch {
	case err == nil:
		fmt.Println("entered")
	case errors.Is(err, dibs.ErrBusy):
		fmt.Println("busy")
	default:
		fmt.Println("refused:", err)
	}
	return nil
}

// try returns a new process's result: "entered", "busy" or "refused:" with the error.
func try(t *testing.T, path string, adjust ...func(*exec.Cmd)) string {
	t.Helper()
	c := startChild(t, "tryOnce", path, adjust...)
	defer c.kill()
	return c.readLine("")
}

func startLoser(t *testing.T, path string, adjust ...func(*exec.Cmd)) *child {
	t.Helper()
	c := startChild(t, "holdUntilLost", path, adjust...)
	c.readLine("holds")
	return c
}

// After a holder's files are removed or replaced, the holder soon detects the loss, and no other
// process enters before.
func TestFilesAreRemovedUnderAHolder(t *testing.T) {
	t.Parallel()
	remove := func(ends ...string) func(t *testing.T, path string) {
		return func(t *testing.T, path string) {
			for _, end := range ends {
				must(t, os.Remove(path+end))
			}
		}
	}
	removeAll := func(t *testing.T, path string) { must(t, os.RemoveAll(filepath.Dir(path))) }
	for name, c := range map[string]struct {
		fault   func(t *testing.T, path string)
		now     string // a new process's result at once
		isLost  bool
		another string // a new process's result after the holder ended, if it does not enter
	}{
		"log and index removed":          {fault: remove("-wal", "-shm"), now: "refused:", isLost: true},
		"log removed":                    {fault: remove("-wal"), now: "refused:", isLost: true},
		"index removed":                  {fault: remove("-shm"), now: "refused:", isLost: true},
		"database removed":               {fault: remove(""), now: "refused:", isLost: true},
		"database, log, index removed":   {fault: remove("", "-wal", "-shm"), now: "refused:", isLost: true},
		"liveness file removed":          {fault: remove(".alive"), now: "busy", isLost: true, another: "busy"},
		"write queue removed":            {fault: remove(".turn"), now: "busy", isLost: true},
		"directory removed":              {fault: removeAll, now: "entered", isLost: true, another: "busy"},
		"database replaced by a copy":    {fault: replaceByCopy, now: "refused:", isLost: true},
		"directory renamed":              {fault: renameDir, now: "entered", isLost: true, another: "busy"},
		"sockets of notifications go":    {fault: func(t *testing.T, path string) { must(t, os.RemoveAll(path+".push")) }, now: "busy"},
		"a copy of the running files":    {fault: func(t *testing.T, path string) { copyDir(t, path) }, now: "busy"},
		"permissions of the files taken": {fault: func(t *testing.T, path string) { must(t, os.Chmod(path, 0)) }, now: "busy"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := newFile(t)
			holder := startLoser(t, path)
			c.fault(t, path)
			if found := try(t, path); !strings.HasPrefix(found, c.now) {
				t.Errorf("a new process: %q, want %q", found, c.now)
			} else if strings.HasPrefix(found, "refused:") && (!strings.Contains(found, path) || !strings.Contains(found, "end these programs")) {
				t.Errorf("%q: want the path, and what to do", found)
			}
			if c.isLost {
				begin := time.Now()
				if why := holder.readLine("lost"); !strings.Contains(why, path) || !strings.Contains(why, "moved, deleted or replaced") {
					t.Errorf("the holder learned%s, want the path and the reason", why)
				}
				t.Logf("the holder learned of it %v after that", time.Since(begin))
			}
			holder.kill()
			if found := try(t, path); found != "entered" && found != c.another {
				t.Errorf("after the end of the holder a new process: %q", found)
			}
		})
	}
}

func replaceByCopy(t *testing.T, path string) {
	t.Helper()
	text, err := os.ReadFile(path)
	must(t, err)
	must(t, os.WriteFile(path+".new", text, 0o600))
	must(t, os.Rename(path+".new", path))
}

func renameDir(t *testing.T, path string) {
	t.Helper()
	dir := filepath.Dir(path)
	must(t, os.Rename(dir, dir+".old"))
}

// copyDir copies the files, and checks that nobody can enter at the copy.
func copyDir(t *testing.T, path string) {
	t.Helper()
	dir := filepath.Dir(path)
	if out, err := exec.Command("cp", "-a", dir, dir+".copy").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if found := try(t, filepath.Join(dir+".copy", filepath.Base(path))); found != "busy" {
		t.Errorf("at the copy: %q, want busy", found)
	}
}

// inNamespace runs a child by unshare with these arguments, after a shell command.
func inNamespace(t *testing.T, before string, args ...string) func(*exec.Cmd) {
	t.Helper()
	if out, err := exec.Command("unshare", append(args, "true")...).CombinedOutput(); err != nil {
		t.Skipf("unshare %s is not permitted here: %v: %s", args, err, out)
	}
	unshare, err := exec.LookPath("unshare")
	must(t, err)
	return func(c *exec.Cmd) {
		c.Path, c.Args = unshare, append(append([]string{"unshare"}, args...), "sh", "-c", before+` exec "$0"`, os.Args[0])
	}
}

// Processes in other namespaces should exclude each other, or be refused.
func TestNamespaces(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"pid":                         {[]string{"--pid", "--fork", "--mount-proc", "--kill-child"}, "busy"},
		"mount":                       {[]string{"--mount"}, "busy"},
		"user":                        {[]string{"--user", "--map-root-user"}, "busy"},
		"ipc, network and host name":  {[]string{"--ipc", "--net", "--uts"}, "busy"},
		"time":                        {[]string{"--time", "--boottime", "100000", "--fork", "--kill-child"}, "one machine only"},
		"time, behind":                {[]string{"--time", "--boottime", "-1000", "--fork", "--kill-child"}, "one machine only"},
		"time, with the clock of all": {[]string{"--time", "--fork", "--kill-child"}, "busy"},
	} {
		for _, inside := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", holder inside: ", inside), func(t *testing.T) {
				t.Parallel()
				namespace, none := inNamespace(t, "", c.args...), func(*exec.Cmd) {}
				holds, tries := none, namespace
				if inside {
					holds, tries = namespace, none
				}
				path := newFile(t)
				holder := startLoser(t, path, holds)
				if found := try(t, path, tries); !strings.Contains(found, c.want) {
					t.Errorf("%q, want %q", found, c.want)
				}
				if found := try(t, path, holds); found != "busy" {
					t.Errorf("beside the holder: %q, want busy", found)
				}
				holder.kill()
				for end := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) { // a namespace ends a little later
					if found := try(t, path, tries); found == "entered" {
						break
					} else if time.Now().After(end) {
						t.Fatalf("after the end of the holder: %q, want entered", found)
					}
				}
			})
		}
	}
}

// A directory mounted elsewhere contains the same locks; a read-only directory is refused.
func TestMounts(t *testing.T) {
	t.Parallel()
	path := newFile(t)
	holder := startLoser(t, path)
	dir, other := filepath.Dir(path), t.TempDir()
	bound := inNamespace(t, fmt.Sprintf("mount --bind '%s' '%s' &&", dir, other), "--mount")
	if found := try(t, filepath.Join(other, filepath.Base(path)), bound); found != "busy" {
		t.Errorf("a bind mount: %q, want busy", found)
	}
	readOnly := inNamespace(t, fmt.Sprintf("mount --bind '%s' '%s' && mount -o remount,ro,bind '%s' &&", dir, other, other), "--mount")
	if found := try(t, filepath.Join(other, filepath.Base(path)), readOnly); found != "busy" {
		t.Errorf("a read-only mount: %q, want busy", found)
	}
	holder.kill()
	if found := try(t, filepath.Join(other, filepath.Base(path)), readOnly); !strings.HasPrefix(found, "refused:") || !strings.Contains(found, "permission to read and write") {
		t.Errorf("a read-only mount: %q, want refused, and what to do", found)
	}
}

// A file in a lower layer is copied up when it is opened. Processes with the same overlay exclude
// each other.
func TestOverlay(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	for _, dir := range []string{"lower", "upper", "work", "merged"} {
		must(t, os.Mkdir(filepath.Join(base, dir), 0o700))
	}
	must(t, openAt(t, filepath.Join(base, "lower", "locks.db")).Close())
	if err := mountOverlay(base); err != nil {
		t.Skipf("cannot mount an overlay: %v", err)
	}
	t.Cleanup(func() { must(t, unmount(filepath.Join(base, "merged"))) })
	path := filepath.Join(base, "merged", "locks.db")
	holder := startLoser(t, path)
	if found := try(t, path); found != "busy" {
		t.Errorf("%q, want busy", found)
	}
	holder.kill()
	if found := try(t, path); found != "entered" {
		t.Errorf("after the end of the holder: %q", found)
	}
}
