package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// The linker drops methods without callers. If any function in the program finds methods by their
// names, as text/template does, the linker keeps all types' exported methods: 10 MB. The linker's
// list of references marks such a function.
func TestNoUnusedMethods(t *testing.T) {
	if testing.Short() {
		t.Skip("links the command")
	}
	const most = 25 << 20 // stripped; other processors have larger instructions
	binary := filepath.Join(t.TempDir(), "dibs")
	command := exec.Command("go", "build", "-ldflags=-s -w -dumpdep", "-o", binary, ".")
	var list strings.Builder
	command.Stderr = &list
	if err := command.Run(); err != nil {
		t.Fatalf("%v\n%s", err, list.String()[:min(list.Len(), 4096)])
	}
	if !strings.Contains(list.String(), "main.main -> ") {
		t.Fatal("the linker has listed nothing")
	}
	for line := range strings.Lines(list.String()) {
		if by, of, _ := strings.Cut(strings.TrimSpace(line), " -> "); strings.HasSuffix(of, "<ReflectMethod>") {
			t.Fatalf("%s refers to %s, which keeps all methods", by, of)
		}
	}
	info, err := os.Stat(binary)
	if err != nil {
		t.Fatal(err)
	}
	if runtime.GOARCH == "amd64" && info.Size() > most {
		t.Errorf("the command has %d bytes, want at most %d", info.Size(), most)
	}
}
