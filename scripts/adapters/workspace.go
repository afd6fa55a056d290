package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// beside contains this repository's modules imported by adapter tests. A workspace with all modules
// would select the newest version required by any module.
var beside = []string{".", "goredisstore", "rueidisstore", "dashboard"}

// test runs an adapter's tests with a library version.
func (a adapter) test(version string) error {
	dir, err := os.MkdirTemp("", "adapters")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := a.writeWorkspace(dir, version); err != nil {
		return err
	}
	environment := append(os.Environ(), "GOWORK="+filepath.Join(dir, "go.work"))
	if a.library == standard {
		environment = append(environment, "GOTOOLCHAIN=go"+version)
	}
	selected, err := a.selected(environment)
	if err != nil {
		return err
	}
	if selected != version {
		return fmt.Errorf("the workspace selects %s", selected)
	}
	tests := exec.Command("go", "test", "-race", "-count=1", "-timeout=30m", "github.com/dibslock/dibs/contrib/"+a.name+"/...")
	tests.Env, tests.Stdout, tests.Stderr = environment, os.Stdout, os.Stderr
	return tests.Run()
}

// writeWorkspace writes a workspace with the adapter. For a newer version than in its go.mod it
// adds a module that requires it.
func (a adapter) writeWorkspace(dir, version string) error {
	var work strings.Builder
	work.WriteString("go 1.26.0\n")
	for _, module := range append([]string{a.dir}, beside...) {
		path, err := filepath.Abs(module)
		if err != nil {
			return err
		}
		fmt.Fprintf(&work, "use %q\n", path)
	}
	if a.library != standard && version != a.required() {
		user := filepath.Join(dir, "user")
		if err := os.Mkdir(user, 0o700); err != nil {
			return err
		}
		module := "module example.com/user\n\ngo 1.26.0\n"
		for _, path := range a.modules() {
			module += fmt.Sprintf("require %s %s\n", path, version)
		}
		if err := os.WriteFile(filepath.Join(user, "go.mod"), []byte(module), 0o600); err != nil {
			return err
		}
		fmt.Fprintf(&work, "use %q\n", user)
	}
	return os.WriteFile(filepath.Join(dir, "go.work"), []byte(work.String()), 0o600)
}

// selected returns the version of the library, or of Go, in a workspace.
func (a adapter) selected(environment []string) (string, error) {
	args := []string{"list", "-m", "-f", "{{.Version}}", a.library}
	if a.library == standard {
		args = []string{"env", "GOVERSION"}
	}
	cmd := exec.Command("go", args...)
	cmd.Env, cmd.Stderr = environment, os.Stderr
	out, err := cmd.Output()
	return strings.TrimPrefix(strings.TrimSpace(string(out)), "go"), err
}
