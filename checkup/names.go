package checkup

import (
	"fmt"
	"slices"
	"strings"
)

// missing returns the wanted names missing in a map.
func missing(have map[string]string, want []string) []string {
	return slices.DeleteFunc(slices.Clone(want), func(name string) bool {
		_, exists := have[name]
		return exists
	})
}

// List returns the first of many names, for a finding.
func List(names []string) string {
	const few = 5
	if len(names) > few {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:few], ", "), len(names)-few)
	}
	return strings.Join(names, ", ")
}
