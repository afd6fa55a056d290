package sqldrill

import (
	"flag"
	"strconv"
)

// FewAtOnce limits how many tests of a package run at a time. Their servers need processors: more
// tests would take as long in all, and each of them much longer.
func FewAtOnce() {
	const most = 4
	parallel := flag.Lookup("test.parallel")
	if n, err := strconv.Atoi(parallel.Value.String()); err == nil && n > most {
		_ = parallel.Value.Set(strconv.Itoa(most)) // a number is valid
	}
}
