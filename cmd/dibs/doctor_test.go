package main

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/memstore"
)

// For a local file, doctor should only check that a lock works.
func TestDoctorOfAFile(t *testing.T) {
	out, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	s := &opened{Full: driver.Complete(memstore.New()), location: "local:/some/file", timeout: time.Second}
	if err := examineStore(t.Context(), &console{out: out}, s); err != nil {
		t.Errorf("want no failure, have %v", err)
	}
	text, _ := os.ReadFile(out.Name())
	if !strings.HasPrefix(string(text), "local:/some/file\nnote: host\n") || !strings.Contains(string(text), "do not exclude processes on other hosts") {
		t.Errorf("have %s", text)
	}
}
