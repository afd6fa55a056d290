package main

import (
	"os"
	"path/filepath"
	"testing"
)

// TestMain lets the test binary be dibs, too: for tests that start, stop and kill it.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "dibs" {
		main()
	}
	os.Exit(m.Run())
}
