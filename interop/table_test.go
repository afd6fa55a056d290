package interop

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// tableVariable has the file to which the matrix is written. A relative path begins in the
// directory of this file.
const tableVariable = "DIBS_INTEROP_OUT"

// writeTables writes the rows that have run, as tables in Markdown.
func writeTables(t *testing.T, rows []*row) {
	path := os.Getenv(tableVariable)
	if path == "" || len(rows) == 0 {
		return
	}
	var text strings.Builder
	fmt.Fprintf(&text, "%s\n\n", time.Now().UTC().Format(time.DateOnly))
	for _, r := range rows {
		fmt.Fprintf(&text, "| %s | %v |\n", r.name, r.cells)
	}
	if err := os.WriteFile(path, []byte(text.String()), 0o644); err != nil {
		t.Error(err)
	}
}
