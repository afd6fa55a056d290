package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestPasswordFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	file, empty := write("secret", " pass word\n"), write("empty", "\n")
	write("dibs-password", "credential\r\n")
	for _, c := range []struct {
		name   string
		env    environment
		want   string // DIBS_PASSWORD
		failed string
	}{
		{name: "none"},
		{"variable", environment{"DIBS_PASSWORD=p", "CREDENTIALS_DIRECTORY=" + dir}, "p", ""},
		{"file", environment{"DIBS_PASSWORD_FILE=" + file, "CREDENTIALS_DIRECTORY=" + dir}, " pass word", ""},
		{"empty variable", environment{"DIBS_PASSWORD=", "DIBS_PASSWORD_FILE=" + file}, " pass word", ""},
		{"credential", environment{"CREDENTIALS_DIRECTORY=" + dir}, "credential", ""},
		{"no credential", environment{"CREDENTIALS_DIRECTORY=" + t.TempDir()}, "", ""},
		{"both", environment{"DIBS_PASSWORD=p", "DIBS_PASSWORD_FILE=" + file}, "", "exclude each other"},
		{"no file", environment{"DIBS_PASSWORD_FILE=" + file + "2"}, "", "DIBS_PASSWORD_FILE: open " + file + "2: no such file"},
		{"empty file", environment{"DIBS_PASSWORD_FILE=" + empty}, "", "is empty"},
	} {
		got, err := c.env.withSecrets()
		if c.failed != "" {
			if err == nil || !strings.Contains(err.Error(), c.failed) {
				t.Errorf("%s: error %v, want %q", c.name, err, c.failed)
			}
			continue
		}
		if err != nil || got.get("DIBS_PASSWORD") != c.want {
			t.Errorf("%s: got %q, %v, want %q", c.name, got.get("DIBS_PASSWORD"), err, c.want)
		}
	}
}

func TestCommandsDoNotInheritPasswords(t *testing.T) {
	t.Parallel()
	for url, kept := range map[string]bool{
		"redis://cache:6379/0":                           true,
		"redis://ann@cache:6379":                         true,
		"postgres://ann@db:5432/app?sslmode=disable":     true,
		"local:/run/locks:1@2":                           true,
		"redis://:secret@cache":                          false,
		"redis://a:1 redis://b:2 redis://ann:secret@c:3": false,
		"redis+sentinel://a,b/m?sentinel_password=x":     false,
		"postgres://db/app?user=ann&password=x":          false,
		"mysql://ann:p:q@db/app":                         false,
		"redis://ann@corp:secret@cache":                  false,
		"redis://:@secret@cache":                         false,
	} {
		env := environment{"PATH=/bin", "DIBS_URL=" + url, "DIBS_PASSWORD=p", "DIBS_SENTINEL_PASSWORD=p", "DIBS_PASSWORD_FILE=/f"}
		want := environment{"PATH=/bin", "DIBS_PASSWORD_FILE=/f"}
		if kept {
			want = environment{"PATH=/bin", "DIBS_URL=" + url, "DIBS_PASSWORD_FILE=/f"}
		}
		if got := env.withoutSecrets(); !slices.Equal(got, want) {
			t.Errorf("%s: a command inherits %q, want %q", url, got, want)
		}
	}
}
