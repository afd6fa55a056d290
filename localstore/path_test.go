//go:build unix

package localstore

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestPath(t *testing.T) {
	t.Parallel()
	file := "/dibs/" + hostFile() // hosts sharing a home have different files
	tail := "/.local/state" + file
	for _, c := range []struct {
		env  map[string]string
		want string
	}{
		{map[string]string{"XDG_STATE_HOME": "/state", "HOME": "/home"}, "/state" + file},
		{map[string]string{"XDG_STATE_HOME": "state", "HOME": "/home"}, "/home" + tail},
		{map[string]string{"HOME": "/home"}, "/home" + tail},
	} {
		if path, err := Path(func(name string) string { return c.env[name] }); err != nil || path != c.want {
			t.Errorf("%v: %q, %v, want %q", c.env, path, err, c.want)
		}
	}
	path, err := Path(func(string) string { return "" })
	if home, none := homeOf(os.Getuid()); none == nil {
		if err != nil || path != home+tail {
			t.Errorf("without HOME: %q, %v", path, err)
		}
	} else if err == nil || !strings.Contains(err.Error(), "set HOME") {
		t.Errorf("%v: want a hint to set HOME", err)
	}
	if host, _ := os.Hostname(); hostFile() != host+".db" && !strings.ContainsAny(host, " /:") {
		t.Errorf("host %q has file %s", host, hostFile())
	}
	if _, err := homeOf(987654321); err == nil {
		t.Error("an unknown user has a home")
	}
}

// Only this user should be able to access the file and its directories.
func TestModes(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a", "b", "locks.db")
	s := openAt(t, path)
	lockAndRelease(t, s, "n", 0)
	for _, file := range []string{path, path + "-wal", path + "-shm", path + ".push", filepath.Dir(path), filepath.Dir(filepath.Dir(path))} {
		info, err := os.Stat(file)
		if err != nil || info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s: %v, %v", file, info.Mode(), err)
		}
	}
	link := filepath.Join(t.TempDir(), "link")
	must(t, os.Symlink(path, link))
	other := openAt(t, link)
	if other.file.path != s.file.path || other.tables.notifier.dir != s.tables.notifier.dir {
		t.Errorf("%s and %s of one file", other.file.path, s.file.path)
	}
}
