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

// writeTable writes the rows that have run, as a table in Markdown.
func writeTable(t *testing.T, rows []*row) {
	path := os.Getenv(tableVariable)
	if path == "" || len(rows) == 0 {
		return
	}
	heads := []string{"library", "version", "runtime"}
	for _, c := range append(columns(), underLoad) {
		heads = append(heads, c.title)
	}
	var text strings.Builder
	fmt.Fprintf(&text, "%s, Redis %s.\n\n", time.Now().UTC().Format(time.DateOnly), rows[0].redis)
	line := func(cells []string) { fmt.Fprintf(&text, "| %s |\n", strings.Join(cells, " | ")) }
	line(heads)
	fmt.Fprintf(&text, "|%s\n", strings.Repeat("---|", len(heads)))
	for _, r := range rows {
		line(append([]string{r.library, r.version, r.runtime}, r.cells...))
	}
	if err := os.WriteFile(path, []byte(text.String()), 0o644); err != nil {
		t.Error(err)
	}
}
