//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/dibslock/dibs/internal/test/redistest"
	"golang.org/x/sys/unix"
)

// A terminal's keys.
const (
	ctrlC         = "\x03"
	ctrlD         = "\x04"
	ctrlZ         = "\x1a"
	ctrlBackslash = "\x1c"
)

// A jobTest is an interactive shell on a terminal, in which dibs runs with its own name.
type jobTest struct {
	*program
	screen *os.File
	name   string
	shell  string
	store  *testStore
	marks  int
	pid    string // dibs' process ID, once found
}

func (j *jobTest) run(command string) string {
	return "dibs run --ttl 10m " + j.name + " -- " + command
}

// enter types a line. It does not wait: the terminal keeps the line for whoever reads next.
func (j *jobTest) enter(line string) { j.typeText(j.screen, line+"\n") }

// wantLast checks the exit code of the shell's last command: it must be in this list.
func (j *jobTest) wantLast(codes ...int) {
	j.t.Helper()
	j.marks++
	j.enter(fmt.Sprintf(`printf "\nmark%d $?\n"`, j.marks))
	have, err := strconv.Atoi(j.awaitLine(fmt.Sprintf("mark%d ", j.marks)))
	if err != nil || !slices.Contains(codes, have) {
		j.t.Errorf("code %d, want %d: %v", have, codes, err)
	}
}

// dibs returns dibs' process ID, or "".
func (j *jobTest) dibs() string {
	if j.pid != "" && alive(j.pid) {
		return j.pid
	}
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range files {
		text, _ := os.ReadFile(file)
		if pid := strings.Split(file, "/")[2]; strings.HasPrefix(string(text), "dibs\x00") && strings.Contains(string(text), "\x00"+j.name+"\x00") && alive(pid) {
			j.pid = pid
			return pid
		}
	}
	return ""
}

// command returns the command's process ID, or 0.
func (j *jobTest) command() int {
	pid, _ := strconv.Atoi(j.dibs())
	if pid == 0 {
		return 0
	}
	return first(childrenOf(first(childrenOf(pid))))
}

// awaitForeground waits until the command is in the foreground.
func (j *jobTest) awaitForeground() {
	j.t.Helper()
	eventually(j.t, "the command is in the foreground", func() bool {
		group := j.foreground()
		return group > 0 && group == j.command()
	})
}

// foreground returns the process group in the foreground on dibs' terminal, or 0.
func (j *jobTest) foreground() (group int) {
	const tpgid = 7
	group, _ = strconv.Atoi(statOf(j.dibs(), tpgid))
	return group
}

// awaitStopped waits until dibs and the command are stopped.
func (j *jobTest) awaitStopped() {
	j.t.Helper()
	eventually(j.t, "dibs and the command are stopped", func() bool {
		return processState(j.dibs()) == "T" && processState(strconv.Itoa(j.command())) == "T"
	})
}

// awaitRunning waits until neither is stopped.
func (j *jobTest) awaitRunning() {
	j.t.Helper()
	eventually(j.t, "dibs and the command run", func() bool {
		dibs, command := processState(j.dibs()), processState(strconv.Itoa(j.command()))
		return dibs != "T" && command != "T" && dibs != "" && command != ""
	})
}

// awaitJob waits until dibs or the command is in the foreground. A shell may not continue a running
// job: then dibs stays in the foreground and forwards ^C and ^Z.
func (j *jobTest) awaitJob() {
	j.t.Helper()
	if j.shell == "dash" { // it continues the job later, and SIGCONT discards a ^Z before
		j.awaitForeground()
		return
	}
	eventually(j.t, "the job is in the foreground", func() bool {
		pid, _ := strconv.Atoi(j.dibs())
		own, err := unix.Getpgid(pid)
		group := j.foreground()
		return err == nil && pid > 0 && (group == own || group == j.command())
	})
}

func (j *jobTest) wantFree() {
	j.t.Helper()
	eventually(j.t, "the lock is free", func() bool { return !j.store.held(j.name) })
}

// stop stops the job with ^Z.
func (j *jobTest) stop() {
	j.t.Helper()
	j.typeText(j.screen, ctrlZ)
	j.awaitStopped()
}

// resume continues the job in the foreground.
func (j *jobTest) resume() {
	j.t.Helper()
	j.enter("fg")
	j.awaitForeground()
}

// echo types a line, which cat prints.
func (j *jobTest) echo() {
	j.t.Helper()
	j.enter("typed")
	j.awaitLine("typed")
}

const sleeps = `sh -c 'echo up; exec sleep 1000'`

// jobTests are TestJobControl's tests: each types a user's keys, and checks the effect.
var jobTests = map[string]func(j *jobTest){
	"foreground": func(j *jobTest) {
		j.enter(j.run(sleeps))
		j.awaitForeground()
		j.typeText(j.screen, ctrlC)
		j.wantLast(130)
	},
	"quit": func(j *jobTest) {
		j.enter("ulimit -c 0; " + j.run(sleeps))
		j.awaitForeground()
		j.typeText(j.screen, ctrlBackslash)
		j.wantLast(131)
		if strings.Contains(j.stdout.String(), "goroutine") {
			j.t.Error("goroutines were dumped")
		}
	},
	"waiting": func(j *jobTest) {
		holder := begin(j.t, j.store.URL(), "hold", "--no-stdin", j.name)
		holder.awaitLine("held")
		j.enter(j.shell + " -c '" + j.run("true; echo NEXT'"))
		eventually(j.t, "it queues", func() bool { return j.store.waiting(j.name) == 1 })
		j.typeText(j.screen, ctrlC)
		j.wantLast(130)
		holder.Process.Signal(syscall.SIGTERM)
	},
	"script": func(j *jobTest) {
		j.enter(j.shell + ` -c "` + j.run(sleeps) + `; echo NEXT"`)
		j.awaitForeground()
		j.typeText(j.screen, ctrlC)
		j.wantLast(130)
	},
	"loop": func(j *jobTest) {
		j.enter(j.shell + ` -c "while :; do ` + j.run(sleeps) + `; echo NEXT; done"`)
		j.awaitForeground()
		j.typeText(j.screen, ctrlC)
		j.wantLast(130)
	},
	"make": func(j *jobTest) {
		if _, err := exec.LookPath("make"); err != nil {
			j.t.Skip(err)
		}
		rule := "all:\n\t@" + j.run(sleeps) + "\n\t@echo NEXT\n"
		if err := os.WriteFile(filepath.Join(j.Dir, "Makefile"), []byte(rule), 0o600); err != nil {
			j.t.Fatal(err)
		}
		j.enter("make")
		j.awaitForeground()
		j.typeText(j.screen, ctrlC)
		j.wantLast(130, 2) // 2: GNU make lost its child while it handled the signal
	},
	"work outside the group": func(j *jobTest) {
		j.enter(j.run(`sh -c 'setsid --fork sleep 1000; echo up'`))
		j.awaitLine("up")
		eventually(j.t, "dibs is in the foreground again", func() bool {
			pid, _ := strconv.Atoi(j.dibs())
			own, err := unix.Getpgid(pid)
			return err == nil && pid > 0 && j.foreground() == own
		})
		j.typeText(j.screen, ctrlC)
		j.wantFree()
	},
	"pipeline": func(j *jobTest) {
		j.enter(j.run(`sh -c 'echo up >/dev/tty; exec sleep 1000' | cat`))
		j.awaitLine("up")
		j.typeText(j.screen, ctrlC)
		j.wantLast(130)
	},
	"elect": func(j *jobTest) {
		j.enter("dibs elect --restart " + j.name + " -- " + sleeps)
		j.awaitLine("up")
		j.typeText(j.screen, ctrlC)
		j.wantLast(130)
	},
	"hold": func(j *jobTest) {
		j.enter(j.shell + ` -c "dibs hold --no-stdin ` + j.name + `; echo NEXT"`)
		j.awaitLine("held")
		j.typeText(j.screen, ctrlC)
		j.wantLast(130)
	},
	"stop and fg": func(j *jobTest) {
		j.enter(j.run("cat"))
		j.awaitForeground()
		j.stop()
		j.resume()
		j.echo()
		j.typeText(j.screen, ctrlD)
		j.wantLast(0)
	},
	"stop for longer than the TTL": func(j *jobTest) {
		j.enter("dibs run --ttl 4s " + j.name + " -- " + sleeps)
		j.awaitForeground()
		command := strconv.Itoa(j.command())
		j.typeText(j.screen, ctrlZ)
		eventually(j.t, "dibs is stopped", func() bool { return processState(j.dibs()) == "T" })
		eventually(j.t, "the command is dead", func() bool { return !alive(command) })
		j.enter("fg")
		j.wantLast(exitLost)
	},
	"stop and bg": func(j *jobTest) {
		j.enter(j.run(sleeps))
		j.awaitForeground()
		j.stop()
		j.enter("bg")
		j.awaitRunning()
		j.enter("fg")
		j.awaitJob()
		j.typeText(j.screen, ctrlC)
		j.wantLast(130)
	},
	"background, fg and stop": func(j *jobTest) {
		j.enter(j.run(sleeps) + " &")
		j.awaitLine("up")
		j.enter("fg")
		j.awaitJob()
		j.stop()
		j.resume()
		j.typeText(j.screen, ctrlC)
		j.wantLast(130)
	},
	"cat in background": func(j *jobTest) {
		j.enter(j.run("cat &"))
		j.awaitStopped()
		j.resume()
		j.echo()
		j.stop()
		j.resume()
		j.typeText(j.screen, ctrlD)
		j.wantLast(0)
	},
	"vi":   func(j *jobTest) { j.editor("vi", ":q!\r") },
	"less": func(j *jobTest) { j.editor("less", "q") },
	"hangup": func(j *jobTest) {
		j.enter(j.run(sleeps))
		j.awaitForeground()
		j.Process.Kill() // the kernel hangs up the terminal when its session leader exits
	},
	"hangup of a loop": func(j *jobTest) {
		j.enter(j.shell + ` -c "while :; do ` + j.run(sleeps) + `; echo NEXT; done"`)
		j.awaitForeground()
		loop := parentOf(j.dibs())
		j.Process.Kill()
		eventually(j.t, "the loop has ended", func() bool { return !alive(loop) })
	},
	"hangup of an election": func(j *jobTest) {
		j.enter("dibs elect --restart " + j.name + " -- " + sleeps)
		j.awaitForeground()
		j.Process.Kill()
		eventually(j.t, "dibs has ended", func() bool { return j.dibs() == "" })
	},
	"hangup that the command handles": func(j *jobTest) {
		handles := `--status-file status ` + j.name + ` -- sh -c 'trap \"exit 0\" HUP; echo up; while :; do sleep 0.02; done'`
		j.enter(j.shell + ` -c "while :; do dibs run --ttl 10m ` + handles + `; done"`)
		j.awaitForeground()
		j.awaitLine("up")
		loop := parentOf(j.dibs())
		j.Process.Kill()
		eventually(j.t, "the loop has ended", func() bool { return !alive(loop) })
		var o outcome
		text, _ := os.ReadFile(filepath.Join(j.Dir, "status"))
		if err := json.Unmarshal(text, &o); err != nil || o.Code == nil || *o.Code != 0 || o.Exit != 129 {
			j.t.Errorf("want code 0 of the command and 129 of dibs, have %s: %v", text, err)
		}
	},
	"terminal of a background job is gone": func(j *jobTest) {
		j.makeGate()
		j.enter(j.shell + ` -c "` + j.run(untilGate) + `; echo >after"`)
		j.leaveInBackground()
		j.openGate()
		eventually(j.t, "the script continues", func() bool { return j.has("after", "\n") })
	},
	"terminal of an election is gone": func(j *jobTest) {
		j.makeGate()
		j.enter("dibs elect --restart " + j.name + " -- " + untilGate)
		j.leaveInBackground()
		j.openGate()
		j.awaitNextTerm()
	},
	"terminal of an election without SIGHUP is gone": func(j *jobTest) {
		j.makeGate()
		j.enter(j.shell + ` -c "trap '' HUP; exec dibs elect --restart ` + j.name + ` -- ` + untilGate + `"`)
		j.awaitForeground()
		j.Process.Kill()
		j.code()
		j.openGate()
		j.awaitNextTerm()
	},
	"top": func(j *jobTest) {
		j.enter("dibs top " + j.name)
		j.awaitTop(1)
		j.typeText(j.screen, ctrlZ)
		eventually(j.t, "top is stopped", func() bool { return processState(j.dibs()) == "T" })
		j.enter("fg")
		j.awaitTop(2)
		j.interruptTop()
		j.wantLast(130)
	},
	"top in a loop": func(j *jobTest) {
		j.enter(j.shell + ` -c "while :; do dibs top ` + j.name + `; echo NEXT; done"`)
		j.awaitTop(1)
		j.interruptTop()
		j.wantLast(130)
	},
}

// untilGate is a command that ends when the test opens the gate. It records its begin.
const untilGate = `sh -c 'echo >>begun; exec cat gate'`

// makeGate makes a named pipe. A shell loop would not do: while it starts another process, ^Z
// cannot stop it.
func (j *jobTest) makeGate() {
	j.t.Helper()
	if err := syscall.Mkfifo(filepath.Join(j.Dir, "gate"), 0o600); err != nil {
		j.t.Fatal(err)
	}
}

func (j *jobTest) openGate() {
	j.t.Helper()
	eventually(j.t, "the command waits at the gate", func() bool {
		gate, err := os.OpenFile(filepath.Join(j.Dir, "gate"), os.O_WRONLY|syscall.O_NONBLOCK, 0)
		return err == nil && gate.Close() == nil
	})
}

// has reports whether a test file begins with a text.
func (j *jobTest) has(file, text string) bool {
	have, _ := os.ReadFile(filepath.Join(j.Dir, file))
	return strings.HasPrefix(string(have), text)
}

// leaveInBackground moves the job into the background and ends the shell, and so the terminal.
func (j *jobTest) leaveInBackground() {
	j.t.Helper()
	j.awaitForeground()
	j.stop()
	j.enter("bg")
	j.awaitRunning()
	j.enter("exit")
	j.code()
}

// awaitNextTerm waits until dibs leads again, and ends it.
func (j *jobTest) awaitNextTerm() {
	j.t.Helper()
	eventually(j.t, "dibs leads again", func() bool { return j.has("begun", "\n\n") })
	pid, _ := strconv.Atoi(j.dibs())
	_ = syscall.Kill(pid, syscall.SIGTERM)
}

// interruptTop types ^C, and waits until dibs top is dead and reads no more keys.
func (j *jobTest) interruptTop() {
	j.t.Helper()
	j.typeText(j.screen, ctrlC)
	eventually(j.t, "top ends", func() bool { return j.dibs() == "" })
}

// awaitTop waits until dibs top has begun to draw a number of times.
func (j *jobTest) awaitTop(times int) {
	j.t.Helper()
	eventually(j.t, "top draws", func() bool { return strings.Count(j.stdout.String(), enterScreen) >= times })
}

// parentOf returns a process's parent.
func parentOf(pid string) string { return statOf(pid, 3) }

// statOf returns a field in /proc/PID/stat, or "". The program's name has no space.
func statOf(pid string, field int) string {
	if pid == "" { // the kernel has a /proc//stat, about the whole machine
		return ""
	}
	text, _ := os.ReadFile("/proc/" + pid + "/stat")
	if fields := strings.Fields(string(text)); len(fields) > field {
		return fields[field]
	}
	return ""
}

// editor starts a full-screen program in the background.
func (j *jobTest) editor(command, quit string) {
	if _, err := exec.LookPath(strings.Fields(command)[0]); err != nil {
		j.t.Skip(err)
	}
	text := filepath.Join(j.Dir, "text")
	if err := os.WriteFile(text, []byte(strings.Repeat("line\n", 1000)), 0o600); err != nil {
		j.t.Fatal(err)
	}
	j.enter(j.run(command + " text &"))
	j.awaitStopped()
	for range 2 {
		shown := len(j.stdout.String())
		j.resume()
		eventually(j.t, "it draws", func() bool { return strings.Contains(j.stdout.String()[shown:], "line") })
		j.stop()
	}
	j.resume()
	j.typeText(j.screen, quit)
	j.wantFree()
	j.wantLast(0)
}

// On a terminal dibs behaves as flock(1) does. Keys reach the command, and a script or a
// loop around it ends with it. The shell can stop it and move it.
func TestJobControl(t *testing.T) {
	t.Parallel()
	s := openTestStore(t, redistest.Start(t).URL())
	for _, shell := range []string{"bash", "dash"} {
		path, err := exec.LookPath(shell)
		if err != nil {
			t.Log(err)
			continue
		}
		for what, test := range jobTests {
			t.Run(shell+" "+what, func(t *testing.T) {
				t.Parallel()
				p := prepare(t, s.URL(), "-i")
				if shell == "bash" {
					p.Args = append(p.Args[:1], "--norc", "--noprofile", "--noediting", "-i")
				}
				p.Path, p.Args[0] = path, shell
				p.Env[0] = "PATH=" + dirWithDibs(t) + ":" + os.Getenv("PATH")
				p.Env = append(p.Env, "PS1=", "TERM=vt100")
				j := &jobTest{program: p, shell: shell, name: strings.NewReplacer(" ", "-", ",", "").Replace(shell + " " + what), store: s}
				j.screen = onTerminal(t, p)
				j.enter("stty -echo; echo ready")
				j.awaitLine("ready")
				test(j)
				j.wantFree()
				if strings.Contains(j.stdout.String(), "NEXT") {
					t.Error("the script has printed NEXT: it was not stopped")
				}
			})
		}
	}
}
