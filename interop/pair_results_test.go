//go:build unix

package interop

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// A pairRow is a result of a run. Pairs of figures are those of dibs, and theirs.
type pairRow struct {
	tool string
	toolVersion
	long  time.Duration
	turns [2]int
	kills [2]int
	block [2]time.Duration
}

// A toolVersion is what the results say about a tool.
type toolVersion struct {
	version string
	runtime string
	key     string // of the name order:42
}

func goRuntime() string { return "Go " + strings.TrimPrefix(runtime.Version(), "go") }

// writePairs writes rows beside the results of the matrix, in a file with its own columns.
func writePairs(path, server string, rows []pairRow) error {
	if path == "" {
		return nil
	}
	all := [][]string{{"tool", "version", "runtime", "lock key of order:42", "date", "seconds", "turns", "killed processes", "longest wait after the end of a holder with a TTL of 4 s", "overlaps"}}
	for _, r := range rows {
		all = append(all, []string{
			r.tool, r.version, r.runtime, r.key, time.Now().UTC().Format(time.DateOnly),
			strconv.Itoa(int(r.long.Seconds())), fmt.Sprintf("%d, %d", r.turns[0], r.turns[1]), fmt.Sprintf("%d, %d", r.kills[0], r.kills[1]),
			fmt.Sprintf("%.1f s, %.1f s", r.block[0].Seconds(), r.block[1].Seconds()), "0",
		})
	}
	var text bytes.Buffer
	if err := csv.NewWriter(&text).WriteAll(all); err != nil {
		return err
	}
	return os.WriteFile(strings.TrimSuffix(path, ".csv")+"-"+server+".csv", text.Bytes(), 0o644)
}
