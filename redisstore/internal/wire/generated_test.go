package wire

import (
	"os"
	"strconv"
	"testing"

	"github.com/dibslock/dibs/internal/slots"
)

// checkGenerated compares a file with what it must contain, or writes it.
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
	scripts := 0
	scriptsOf(func(name string) string {
		scripts++
		checkGenerated(t, "plain/"+name+".lua", c.file(name))
		return ""
	})
	if files, err := os.ReadDir("plain"); err != nil || len(files) != scripts {
		t.Errorf("plain has %d files for %d scripts: %v", len(files), scripts, err)
	}
}

func TestSlotTagsAreFound(t *testing.T) {
	found := make(map[int]bool)
	table := make([]byte, 3*slots.Count)
	for n := 0; len(found) < slots.Count; n++ {
		if s := slots.Of(strconv.Itoa(n)); !found[s] {
			found[s] = true
			table[3*s], table[3*s+1], table[3*s+2] = byte(n), byte(n>>8), byte(n>>16)
		}
	}
	checkGenerated(t, "slottags.bin", string(table))
}
