// Rates counts how often some common words are in a directory's Go comments, for each 1,000
// words. Translated prose differs from the field's own in these rates, even when each
// sentence is correct.
//
//	go run ./scripts/rates [-v] DIRECTORY ...
//
// It fails if a rate is outside its range: the range over the comments in bbolt, raft, river,
// pgx, age and go-cloud. With -v it prints each directory's rates.
package main

import (
	"flag"
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// A bound is a word's range, in occurrences for each 1,000 words.
type bound struct {
	word     string
	from, to float64
}

var bounds = []bound{
	{"has", 0, 3.6},
	{"one", 0, 2.9},
	{"that", 0, 14},
	{"of", 0, 17},
	{"what", 0, 0.4},
	{"can", 2.6, 12},
	{"should", 1.5, 4.2},
}

func main() {
	verbose := flag.Bool("v", false, "print the rates of each directory")
	flag.Parse()
	total, failed := counts{}, false
	byDir := map[string]counts{}
	for _, root := range flag.Args() {
		if err := count(root, func(dir, word string) {
			total[word]++
			if byDir[dir] == nil {
				byDir[dir] = counts{}
			}
			byDir[dir][word]++
		}); err != nil {
			fmt.Fprintln(os.Stderr, "rates:", err)
			os.Exit(2)
		}
	}
	if *verbose {
		for _, dir := range slices.Sorted(maps.Keys(byDir)) {
			fmt.Println(byDir[dir].String(), dir)
		}
	}
	fmt.Println(total.String(), "all")
	for _, b := range bounds {
		if r := total.rate(b.word); r < b.from || r > b.to {
			fmt.Printf("%q: %.2f of 1,000 words, outside %.1f to %.1f\n", b.word, r, b.from, b.to)
			failed = true
		}
	}
	if failed {
		os.Exit(1)
	}
}

// counts contains the numbers of words; "" counts all.
type counts map[string]int

func (c counts) rate(word string) float64 { return 1000 * float64(c[word]) / float64(max(c[""], 1)) }

func (c counts) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%7d words", c[""])
	for _, bound := range bounds {
		fmt.Fprintf(&b, "  %s %5.2f", bound.word, c.rate(bound.word))
	}
	return b.String()
}

var wordPattern = regexp.MustCompile(`[A-Za-z][A-Za-z'’-]*`)

// count calls add for each counted word in the comments below a directory, and with "" for
// each word.
func count(root string, add func(dir, word string)) error {
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && len(d.Name()) > 1 && strings.HasPrefix(d.Name(), "."), d.IsDir() && d.Name() == "testdata":
			return fs.SkipDir
		case d.IsDir() || filepath.Ext(path) != ".go":
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, group := range file.Comments {
			for _, word := range wordPattern.FindAllString(group.Text(), -1) {
				add(filepath.Dir(path), "")
				if word = strings.ToLower(word); slices.ContainsFunc(bounds, func(b bound) bool { return b.word == word }) {
					add(filepath.Dir(path), word)
				}
			}
		}
		return nil
	})
}
