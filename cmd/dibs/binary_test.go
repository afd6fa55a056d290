package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
)

// The client of etcd takes 15 MB: gRPC and protocol buffers find methods by their names, so the
// linker keeps all exported methods. Without it, the command has 23 MB.
func TestSizeOfBinary(t *testing.T) {
	if testing.Short() {
		t.Skip("links the command")
	}
	const most = 38 << 20 // stripped; other processors have larger instructions
	binary := filepath.Join(t.TempDir(), "dibs")
	if text, err := exec.Command("go", "build", "-ldflags=-s -w", "-o", binary, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	info, err := os.Stat(binary)
	if err != nil {
		t.Fatal(err)
	}
	if runtime.GOARCH == "amd64" && info.Size() > most {
		t.Errorf("the command has %d bytes, want at most %d", info.Size(), most)
	}
}
