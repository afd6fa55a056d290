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

// tools describes the tools of some rows.
type tools struct {
	version string
	runtime string
	key     string // of the name order:42
}

// A pairResult is a line of the results.
type pairResult struct {
	tools
	pairRow
}

// results returns the results of tools with the same version.
func (t tools) results(rows []pairRow) (results []pairResult) {
	for _, r := range rows {
		results = append(results, pairResult{t, r})
	}
	return results
}

func goRuntime() string { return "Go " + strings.TrimPrefix(runtime.Version(), "go") }

// writePairs writes results beside the results of the matrix, in a file with its own columns.
func writePairs(path, server string, results []pairResult) error {
	if path == "" {
		return nil
	}
	all := [][]string{{"tool", "version", "runtime", "lock key of order:42", "date", "seconds", "turns", "killed processes", "longest wait after the end of a holder with a TTL of 4 s", "overlaps"}}
	for _, r := range results {
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
