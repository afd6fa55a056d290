//go:build linux

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/test/redistest"
)

// escapes are commands to run the script in $WORK in its own process group, session or terminal.
var escapes = map[string][]string{
	"timeout":            {"timeout", "1000", "sh", "-c", `eval "$WORK"`},
	"timeout in a shell": {"sh", "-c", `timeout 1000 sh -c 'eval "$WORK"'; true`},
	"setsid":             {"setsid", "-w", "sh", "-c", `eval "$WORK"`},
	"setsid in a shell":  {"sh", "-c", `setsid -w sh -c 'eval "$WORK"'; true`},
	"job control":        {"bash", "-c", `set -m; sh -c 'eval "$WORK"' & wait`},
	"interactive":        {"bash", "--norc", "-ic", `sh -c 'eval "$WORK"' & wait`},
	"script":             {"script", "-qec", `sh -c 'eval "$WORK"'`, "/dev/null"},
	"nested":             {"dibs", "run", "--ttl", "20s", "inner", "--", "setsid", "-w", "sh", "-c", `eval "$WORK"`},
}

// beginEscape starts a run with an escape.
func beginEscape(t *testing.T, url, how, work string, flags ...string) (p *program, pids []string) {
	t.Helper()
	argv := escapes[how]
	if _, err := exec.LookPath(argv[0]); err != nil && argv[0] != "dibs" {
		t.Skip(err)
	}
	p = prepare(t, url, append(append(append([]string{"run"}, flags...), "job", "--"), argv...)...)
	p.Env[0] = "PATH=" + dirWithDibs(t) + ":" + os.Getenv("PATH")
	p.Env = append(p.Env, "WORK="+work)
	p.begin()
	return p, p.pids()
}

// onEachEscape runs a test with each escape, on a Redis and on a file.
func onEachEscape(t *testing.T, test func(t *testing.T, s *testStore, how string)) {
	t.Helper()
	t.Parallel()
	for how := range escapes {
		t.Run(how, func(t *testing.T) {
			onEachStore(t, func(t *testing.T, s *testStore) { test(t, s, how) })
		})
	}
}

// wantAllDead checks that the processes are dead when the next holder acquires the lock.
func (s *testStore) wantAllDead(pids []string) {
	s.t.Helper()
	next := begin(s.t, s.URL(), "run", "job", "--", "sh", "-c", `for p; do read -r line </proc/$p/stat && echo "$line"; done 2>/dev/null; exit 0`, "sh")
	next.Args = append(next.Args, pids...)
	next.wantCode(0)
	for _, pid := range pids {
		if alive(pid) {
			s.t.Errorf("process %s of the command is alive after the next holder has acquired the lock", pid)
		}
	}
}

// A signal reaches processes that left the process group. The lock is held until they exit.
func TestEscapeIsSignalled(t *testing.T) {
	onEachEscape(t, func(t *testing.T, s *testStore, how string) {
		p, pids := beginEscape(t, s.URL(), how, parentAndChild)
		p.Process.Signal(syscall.SIGTERM)
		p.code()
		if anyAlive(pids) {
			t.Error("alive after dibs has exited")
		}
		if s.held("job") {
			t.Error("the lock is still held")
		}
	})
}

// dibs should wait for processes that left the process group and exit slowly.
func TestEscapeIsWaitedFor(t *testing.T) {
	onEachEscape(t, func(t *testing.T, s *testStore, how string) {
		gate := filepath.Join(t.TempDir(), "gate")
		asked := gate + ".asked"
		p, pids := beginEscape(t, s.URL(), how, fmt.Sprintf(`trap '' HUP; trap ': >%s' TERM; echo "pids $$"; until [ -e %s ]; do sleep 0.02; done`, asked, gate))
		p.Process.Signal(syscall.SIGTERM)
		eventually(t, "asked", func() bool { _, err := os.Stat(asked); return err == nil })
		time.Sleep(300 * time.Millisecond) // dibs must neither kill nor release now
		if !anyAlive(pids) || !s.held("job") {
			t.Error("the process is dead, or the lock is free")
		}
		if err := os.WriteFile(gate, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		p.code()
		if anyAlive(pids) {
			t.Error("alive after dibs has exited")
		}
	})
}

// If dibs is killed, processes that left the process group are killed, long before the lock
// expires.
func TestEscapeWhenDibsIsKilled(t *testing.T) {
	onEachEscape(t, func(t *testing.T, s *testStore, how string) {
		p, pids := beginEscape(t, s.URL(), how, stubborn, "--ttl", "20s")
		p.Process.Kill()
		eventually(t, "all dead", func() bool { return !anyAlive(pids) })
	})
}

// If dibs is stopped, all processes are dead before the next holder acquires the lock.
func TestEscapeWhenDibsIsStopped(t *testing.T) {
	onEachEscape(t, func(t *testing.T, s *testStore, how string) {
		p, pids := beginEscape(t, s.URL(), how, stubborn, "--ttl", "3s")
		s.suspend(p.Cmd)
		s.wantAllDead(pids)
		p.Process.Signal(syscall.SIGCONT)
		p.wantCode(exitLost)
	})
}

// If the lock is revoked, all processes are dead when dibs exits.
func TestEscapeWhenTheLockIsRevoked(t *testing.T) {
	onEachEscape(t, func(t *testing.T, s *testStore, how string) {
		p, pids := beginEscape(t, s.URL(), how, stubborn, "--ttl", "6s", "--kill-after", "200ms")
		if fence := s.state("job").Holders[0].Fence; fence == 0 { // a Redis has not stored it yet
			s.deleteLock(t)
		} else if revoked, err := s.store.Revoke(t.Context(), driver.RevokeRequest{Name: "job", Fence: fence}); !revoked || err != nil {
			t.Fatalf("Revoke: %v, %v", revoked, err)
		}
		p.wantCode(exitLost)
		if anyAlive(pids) {
			t.Error("alive after dibs has exited")
		}
	})
}

// deleteLock deletes a lock key in Redis.
func (s *testStore) deleteLock(t *testing.T) {
	t.Helper()
	if err := exec.Command("redis-cli", "-u", s.url, "del", "lock:job").Run(); err != nil {
		t.Fatal(err)
	}
}

// If the store is unreachable, all processes are dead before the lease expires.
func TestEscapeWhenTheStoreIsAway(t *testing.T) {
	t.Parallel()
	for how := range escapes {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t)
			p, pids := beginEscape(t, s.URL(), how, stubborn, "--ttl", "2s", "--kill-after", "500ms")
			s.Kill()
			p.wantCode(exitLost)
			if anyAlive(pids) {
				t.Error("alive after dibs has exited")
			}
		})
	}
}

// --max-hold ends processes that left the process group.
func TestEscapeAtMaxHold(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	for how := range escapes {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			p, pids := beginEscape(t, s.URL()+"/3", how, stubborn, "--prefix", how, "--max-hold", "2s", "--kill-after", "100ms")
			p.wantCode(exitMaxHold)
			if anyAlive(pids) {
				t.Error("alive after dibs has exited")
			}
		})
	}
}

// The watchdog kills processes that move from session to session: each starts the next process in
// a new session and exits at once.
func TestEscapeByForking(t *testing.T) {
	onEachStore(t, func(t *testing.T, s *testStore) {
		gate := filepath.Join(t.TempDir(), "gate") // the processes stop when it is missing
		if err := os.WriteFile(gate, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		p := prepare(t, s.URL(), "run", "--ttl", "20s", "job", "--", "sh", "-c", `for i in 1 2 3; do sh -c "$RUN" "$GATE" & done; sleep 0.3; echo ready; sleep 1000`)
		p.Env = append(p.Env, "GATE="+gate, `RUN=[ -e "$GATE" ] && echo >>"$GATE" && setsid sh -c "$RUN" "$GATE" >/dev/null 2>&1 &`)
		p.begin()
		p.awaitLine("ready")
		// Each process writes a line: it is too short-lived to be found in /proc.
		runs := func(within time.Duration) bool {
			before := lines(t, gate)
			for end := time.Now().Add(within); time.Now().Before(end); time.Sleep(time.Millisecond) {
				if lines(t, gate) > before {
					return true
				}
			}
			return false
		}
		if !runs(20 * time.Second) {
			t.Fatal("the processes do not run")
		}
		p.Process.Kill()
		eventually(t, "nothing runs", func() bool { return !runs(time.Second) })
	})
}

func lines(t *testing.T, file string) int64 {
	t.Helper()
	info, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

// A daemon left the group and closed its files. It should survive a normal end, and die with a
// command that dibs or the watchdog kills.
func TestDaemon(t *testing.T) {
	onEachStore(t, func(t *testing.T, s *testStore) {
		gate := filepath.Join(t.TempDir(), "gate")
		const daemon = `(setsid bash -c 'for fd in /proc/self/fd/*; do n=${fd##*/}; [ $n -lt 3 ] || eval "exec $n>&-"; done; echo "pids $$"; exec sleep 1000 >/dev/null 2>&1' &); `
		p := begin(t, s.URL(), "run", "job", "--", "sh", "-c", daemon+`until [ -e "$0" ]; do sleep 0.02; done; exit 4`, gate)
		pids := p.pids()
		writeFile(t, gate)
		p.wantCode(4)
		if !anyAlive(pids) || s.held("job") {
			t.Error("the daemon is dead, or its lock is still held")
		}
		p = begin(t, s.URL(), "run", "--ttl", "20s", "job", "--", "sh", "-c", daemon+`echo ready; sleep 1000`)
		pids = p.pids()
		p.awaitLine("ready")
		p.Process.Kill()
		eventually(t, "the daemon is dead", func() bool { return !anyAlive(pids) })
	})
}

// A child process from before exec started dibs does not belong to the command.
func TestInheritedChild(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	p := prepare(t, s.URL(), "-c", `sleep 1000 & echo "other $!"; exec dibs run --ttl 1s job -- setsid -w sh -c 'sleep 1000 & echo "pids $$ $!"; wait'`)
	p.Path, p.Args[0] = "/bin/sh", "sh"
	p.Env[0] = "PATH=" + dirWithDibs(t) + ":" + os.Getenv("PATH")
	p.begin()
	other := strings.Fields(p.awaitLine("other"))[0]
	pids := p.pids()
	watchdog := pidOf(t, watchdogOf(t, p, ""))
	syscall.Kill(watchdog, syscall.SIGKILL) // so that dibs must find the processes itself
	p.wantCode(exitLost)
	if anyAlive(pids) {
		t.Error("alive after dibs has ended")
	}
	if !alive(other) {
		t.Error("a process that does not belong to the command is dead")
	}
	syscall.Kill(pidOf(t, other), syscall.SIGKILL)
}

// Without /proc, dibs cannot find processes outside the group. It waits for them.
func TestWithoutProc(t *testing.T) {
	const hide = "umount -l /proc && "
	if err := exec.Command("unshare", "-m", "sh", "-c", hide+"true").Run(); err != nil {
		t.Skip("no mount namespaces here:", err)
	}
	t.Parallel()
	s := openTestStore(t, redistest.Start(t).URL()) // a local file needs /proc
	gate := filepath.Join(t.TempDir(), "gate")
	p := prepareUnshared(t, s.URL(), "-m", "sh", "-c", hide+`exec dibs run -v job -- sh -c 'setsid sh -c "until [ -e $0 ]; do sleep 0.02; done" & echo begun; exit 5' "$0"`, gate)
	p.begin()
	p.awaitLine("begun")
	eventually(t, "it is reported", func() bool { return strings.Contains(p.stderr.String(), "waiting for them") })
	if !s.held("job") {
		t.Error("the lock is free")
	}
	writeFile(t, gate)
	p.wantCode(5)
	if !strings.Contains(p.stderr.String(), "/proc is missing") {
		t.Errorf("stderr is %q", &p.stderr)
	}
}

// A stopped command should be continued with a termination signal. It would not handle the signal
// before.
func TestStoppedCommandIsTerminated(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	for how := range escapes {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			p, pids := beginEscape(t, s.URL(), how, parentAndChild, "--prefix", how)
			for _, pid := range pids {
				syscall.Kill(pidOf(t, pid), syscall.SIGSTOP)
			}
			p.Process.Signal(syscall.SIGTERM)
			p.code()
			if anyAlive(pids) {
				t.Error("alive after dibs has exited")
			}
		})
	}
}

// dibs waits for a process that it may not kill, and says so.
func TestProcessOfAnotherUser(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can run a command as another user")
	}
	const nobody = 65534
	s := redistest.Start(t)
	dir := t.TempDir()
	dibs, asRoot, gate := filepath.Join(dir, "dibs"), filepath.Join(dir, "as-root"), filepath.Join(dir, "gate")
	program, err := os.ReadFile(self(t))
	if err := errors.Join(
		err, os.Chmod(dir, 0o755), os.Chmod(filepath.Dir(dir), 0o755),
		os.WriteFile(dibs, program, 0o600), os.Chmod(dibs, 0o755),
		os.WriteFile(asRoot, program, 0o600), os.Chmod(asRoot, 0o755|os.ModeSetuid),
	); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.WriteFile(gate, nil, 0o600) }) // nobody else ends the process
	p := prepare(t, s.URL(), "run", "--max-hold", "1s", "--kill-after", "100ms", "job", "--", asRoot, gate)
	p.Path, p.Dir = dibs, dir
	p.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	p.begin()
	eventually(t, "it is reported", func() bool { return strings.Contains(p.stderr.String(), "may not kill it") })
	if s.MustCmd(t, "EXISTS", "lock:job") != int64(1) {
		t.Error("the lock was released")
	}
	writeFile(t, gate)
	p.wantCode(exitMaxHold)
}
