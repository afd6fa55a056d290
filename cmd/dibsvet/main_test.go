package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dibslock/dibs/cmd/dibsvet/checks"
)

// The packages in checks/testdata contain mistakes for the check with their name.
const testdata = "checks/testdata"

func TestUsageNamesEachCheck(t *testing.T) {
	text := usage(checks.All(nil))
	for _, a := range checks.All(nil) {
		if !strings.Contains(text, "\n  "+a.Name+" ") {
			t.Errorf("the usage does not name %s:\n%s", a.Name, text)
		}
	}
}

// build builds the command and returns its path.
func build(t *testing.T) string {
	t.Helper()
	command := filepath.Join(t.TempDir(), "dibsvet")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", command, ".").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return command
}

// run runs a program in testdata, and returns its output and whether it succeeded.
func run(t *testing.T, name string, args ...string) (out string, ok bool) {
	t.Helper()
	dir, err := filepath.Abs(testdata)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK="+filepath.Join(dir, "go.work"), "GOFLAGS=", "GOPROXY=off")
	text, err := cmd.CombinedOutput()
	return string(text), err == nil
}

func TestCommand(t *testing.T) {
	t.Parallel()
	command := build(t)
	vet := []string{"go", "vet", "-vettool=" + command}
	for _, test := range []struct {
		name string
		args []string
		ok   bool
		want string // contained in the output
		none string // not contained in the output
	}{
		{"go vet finds a mistake", append(vet, "./lostlease"), false, "lostlease/bad.go:14:18: the lease lease is not unlocked on all paths: line 19 is reached without lease.Unlock() (lostlease)\n", ""},
		{"go vet finds none", append(vet, "./clean"), true, "", "clean"},
		{"one check", append(vet, "-badname", "./lostlease", "./badname"), false, "badname/bad.go", "not unlocked"},
		{"all but one check", append(vet, "-lostlease=false", "./lostlease"), false, "", "not unlocked"},
		{"nofence is off", append(vet, "./nofence"), true, "", "late holder"},
		{"only nofence", append(vet, "-nofence", "./nofence", "./lostlease"), false, "late holder", "not unlocked"},
		{"nofence as well", append(vet, "-nofence.on", "./nofence", "./lostlease"), false, "late holder", ""},
		{"alone", []string{command, "./lostlease"}, false, "lostlease/bad.go:14:18: the lease lease is not unlocked on all paths: line 19 is reached without lease.Unlock() (lostlease)\n", ""},
		{"alone, nofence is off", []string{command, "./nofence"}, true, "", "late holder"},
		{"alone, only nofence", []string{command, "-nofence", "./nofence", "./lostlease"}, false, "late holder", "not unlocked"},
		{"alone, with a diff", []string{command, "-isbusy", "-fix", "-diff", "./isbusy"}, true, "+\tcase errors.Is(err, dibs.ErrBusy)", ""},
		{"help", []string{command, "help"}, true, "outerctx     find contexts from outside", ""},
		{"help of a check", []string{command, "help", "outerctx"}, true, "outerctx: find contexts from outside in a function under a lock\n\nThe function given to Do", ""},
		{"usage", []string{command, "-h"}, true, "dibsvet finds mistakes", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			out, ok := run(t, test.args[0], test.args[1:]...)
			if ok != test.ok || !strings.Contains(out, test.want) || test.none != "" && strings.Contains(out, test.none) {
				t.Errorf("%s\nsucceeded: %v, want %v\nhas %q, want %q and not %q", strings.Join(test.args, " "), ok, test.ok, out, test.want, test.none)
			}
		})
	}
	t.Run("JSON", func(t *testing.T) { checkJSON(t, command) })
}

func checkJSON(t *testing.T, command string) {
	out, _ := run(t, command, "-json", "./lostlease")
	var found map[string]map[string][]struct{ Posn, Message string }
	if err := json.Unmarshal([]byte(out), &found); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if n := len(found["example.com/testdata/lostlease"]["lostlease"]); n < 5 {
		t.Errorf("%d findings of lostlease, want at least 5\n%s", n, out)
	}
}
