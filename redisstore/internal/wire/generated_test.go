package wire

import (
	"flag"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"

	"github.com/dibslock/dibs/redisstore/redisconn"
)

var updateFlag = flag.Bool("update", false, "write plain, slottags.bin and testdata/vectors.txt")

// While files are written, no test uses the scripts in plain: those are from before, and a new
// script is not among them.
func TestMain(m *testing.M) {
	flag.Parse()
	if *updateFlag {
		Plain = sync.OnceValue(func() *Scripts { return load("", nil) })
	}
	m.Run()
}

// checkGenerated compares a file with its expected content, or writes it.
func checkGenerated(t *testing.T, file, want string) {
	t.Helper()
	if *updateFlag {
		if err := os.WriteFile(file, []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if have, err := os.ReadFile(file); err != nil || string(have) != want {
		t.Errorf("%s is out of date: go test -update writes it: %v", file, err)
	}
}

func TestPlainScriptsAreComposed(t *testing.T) {
	c := composer{files: make(map[string]string)}
	written := make(map[string]bool)
	scriptsOf(func(name string) string {
		file := "plain/" + name + ".lua"
		written[file] = true
		checkGenerated(t, file, c.file(name))
		return ""
	})
	files, err := filepath.Glob("plain/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if !written[file] {
			t.Errorf("%s is of no script: remove it", file)
		}
	}
}

func TestSlotTagsAreFound(t *testing.T) {
	found := make(map[int]bool)
	table := make([]byte, 3*redisconn.SlotCount)
	for n := 0; len(found) < redisconn.SlotCount; n++ {
		if s := redisconn.SlotOf(strconv.Itoa(n)); !found[s] {
			found[s] = true
			table[3*s], table[3*s+1], table[3*s+2] = byte(n), byte(n>>8), byte(n>>16)
		}
	}
	checkGenerated(t, "slottags.bin", string(table))
}
