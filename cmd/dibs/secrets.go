package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// secretVars are the variables for passwords. Each may be replaced by a file: by the variable with
// the suffix _FILE, or by a systemd credential.
var secretVars = []string{"DIBS_PASSWORD", "DIBS_SENTINEL_PASSWORD"}

const fileSuffix = "_FILE"

// withSecrets returns the environment with the passwords from files.
func (e environment) withSecrets() (environment, error) {
	for _, name := range secretVars {
		path := e.get(name + fileSuffix)
		if path != "" && e.get(name) != "" {
			return nil, usage("%s and %s%s exclude each other", name, name, fileSuffix)
		}
		if e.get(name) != "" {
			continue
		}
		secret, err := e.readSecret(name, path)
		if err != nil {
			return nil, err
		}
		if secret != "" {
			e = append(e.without(name), name+"="+secret)
		}
	}
	return e, nil
}

// readSecret reads the file at path, or else the systemd credential for a variable, if it exists:
// dibs-password for DIBS_PASSWORD. It removes one newline from the end, which editors add.
func (e environment) readSecret(variable, path string) (string, error) {
	from := variable + fileSuffix
	if path == "" {
		dir := e.get("CREDENTIALS_DIRECTORY")
		if dir == "" {
			return "", nil
		}
		from, path = "credential", filepath.Join(dir, strings.ToLower(strings.ReplaceAll(variable, "_", "-")))
	}
	text, err := os.ReadFile(path)
	switch {
	case from == "credential" && errors.Is(err, fs.ErrNotExist):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("%s: %w", from, err)
	}
	secret := strings.TrimSuffix(strings.TrimSuffix(string(text), "\n"), "\r")
	if secret == "" {
		return "", fmt.Errorf("%s: %s is empty", from, path)
	}
	return secret, nil
}

// withoutSecrets returns the environment without the store's passwords, which a command under the
// lock does not need.
func (e environment) withoutSecrets() environment {
	e = e.without(secretVars...)
	if hasPassword(e.get("DIBS_URL")) {
		return e.without("DIBS_URL")
	}
	return e
}

// hasPassword reports whether a text with URLs contains a password, after the user or as a
// parameter.
func hasPassword(urls string) bool {
	return regexp.MustCompile(`://\S*:\S+@|[?&][a-z_]*password=`).MatchString(urls)
}

func (e environment) without(names ...string) environment {
	return slices.DeleteFunc(slices.Clone(e), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return slices.Contains(names, name)
	})
}
