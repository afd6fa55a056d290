// Adapters runs the tests in contrib with the oldest and the newest version that each package
// documents.
//
//	go run ./scripts/adapters [NAME...]
//
// An adapter's package comment documents the pair: "Tested with v1.2.0 to v1.9.3 of
// example.com/library." The oldest version is also required in its go.mod, so no user can have an
// older version. The newest version is selected as in a user's program that requires it.
package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "adapters:", err)
		os.Exit(1)
	}
}

// run tests the adapters with these names, or all.
func run(names []string) error {
	adapters, err := readAdapters(".")
	if err != nil {
		return err
	}
	for _, name := range names {
		if !slices.ContainsFunc(adapters, func(a adapter) bool { return a.name == name }) {
			return fmt.Errorf("contrib has no adapter %q", name)
		}
	}
	var failed []error
	for _, a := range adapters {
		if len(names) > 0 && !slices.Contains(names, a.name) {
			continue
		}
		for _, version := range slices.Compact([]string{a.oldest, a.newest}) {
			fmt.Printf("== %s with %s %s\n", a.name, a.library, version)
			if err := a.test(version); err != nil {
				failed = append(failed, fmt.Errorf("%s with %s %s: %w", a.name, a.library, version, err))
			}
		}
	}
	return errors.Join(failed...)
}
