//go:build linux

package main

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// A run inside a run that would wait for the outer lock without limit is rejected. A limited
// wait, a free permit, another name and another store are allowed.
func TestNestedRunWouldDeadlock(t *testing.T) {
	onEachStore(t, func(t *testing.T, s *testStore) {
		for i, test := range []struct {
			outer, inner string
			code         int
		}{
			{"run X", "run X -- true", exitUsage},
			{"run W X", "run Y X -- true", exitUsage},
			{"run X -- dibs run Y", "run X -- true", exitUsage},
			{"run X", "hold X", exitUsage},
			{"run X", "acquire X", exitUsage},
			{"elect X", "elect X -- true", exitUsage},
			{"run --shared X", "run X -- true", exitUsage},
			{"run X", "run --shared X -- true", exitUsage},
			{"run --slots 3 --permits 2 X", "run --slots 3 --permits 2 X -- true", exitUsage},
			{"run --slots 3 --permits 2 X", "run --slots 3 X -- true", 0},
			{"run --shared X", "run --shared X -- true", 0},
			{"run X", "run Y -- true", 0},
			{"run X", "run -w 50ms X -- true", exitBusy},
			{"run X", "run -n X -- true", exitBusy},
			{"run X", "run --skip-ok -n X -- true", 0},
			{"run X", "run --local X -- true", 0},
		} {
			t.Run(test.outer+" "+test.inner, func(t *testing.T) {
				t.Parallel()
				n := strconv.Itoa(i)
				named := strings.NewReplacer("W", "w"+n, "X", "x"+n, "Y", "y"+n)
				p := prepare(t, s.URL(), "-c", named.Replace("dibs "+test.outer+" -- sh -c 'dibs "+test.inner+`; echo "inner $?"'`))
				p.Path, p.Args[0] = "/bin/sh", "sh"
				p.Env[0] = "PATH=" + dirWithDibs(t) + ":" + os.Getenv("PATH")
				p.Env = append(p.Env, "HOME="+t.TempDir())
				p.begin()
				if have := p.awaitLine("inner"); have != strconv.Itoa(test.code) {
					t.Errorf("exit code %s, want %d", have, test.code)
				}
				p.wantCode(0)
			})
		}
	})
}

// A daemon that outlived its run should be able to wait for that run's name.
func TestDaemonOfARunMayWait(t *testing.T) {
	onEachStore(t, func(t *testing.T, s *testStore) {
		gate := filepath.Join(t.TempDir(), "gate")
		p := prepare(t, s.URL(), "run", "--leave-daemons", "job", "--", "sh", "-c", `setsid sh -c 'echo "pids $$"; until [ -e "$0" ]; do sleep 0.02; done; exec dibs run job -- echo entered' "$0" & sleep 0.2`, gate)
		p.Env[0] = "PATH=" + dirWithDibs(t) + ":" + os.Getenv("PATH")
		p.begin()
		p.pids()
		eventually(t, "the outer run has released the lock", func() bool { return !s.held("job") })
		other := begin(t, s.URL(), "hold", "--no-stdin", "job")
		other.awaitLine("held")
		if err := os.WriteFile(gate, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		eventually(t, "it queues", func() bool { return s.waiting("job") == 1 })
		other.Process.Signal(syscall.SIGTERM)
		p.awaitLine("entered")
	})
}
