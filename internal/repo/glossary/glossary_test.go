// Package glossary checks that the repository uses a single word for each concept: the words in
// CONTRIBUTING.md, and not the words that they replace.
package glossary

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// A replaced term is not used in any text or identifier.
type replaced struct {
	terms   []string // in lower case; identifiers are divided into words before
	instead string
	except  *regexp.Regexp // a path or a line in which it means something else
}

var glossary = []replaced{
	{[]string{"claim", "claims", "claimed", "claiming"}, "request, lease", nil},
	{[]string{"alone or", "a part of it", "weighs as much"}, "exclusive, shared", nil},
	{[]string{"give back", "gives back", "gave back", "given back", "giving back", "hand in", "hands in", "handed in"}, "release", nil},
	{[]string{"hand on", "hands on", "handed on", "handing on"}, "hand off", nil},
	{[]string{"prolong", "prolongs", "prolonged"}, "extend", nil},
	{[]string{"abandon"}, "cancel", nil},
	{[]string{"reweigh", "reweighs", "reweighed"}, "resize", nil},
	{[]string{"fence note", "claim ttl"}, "fence high-water mark, waiter TTL", nil},
	{[]string{"floor", "floors"}, "fence high-water mark, baseline, layer", regexp.MustCompile(`math\.[Ff]loor`)},
	{[]string{"roof", "ground floor", "house"}, "layer", nil},
	{[]string{"in line", "stand in"}, "in the queue", nil},
	{[]string{"sign of life", "signs of life", "life sign", "signs"}, "heartbeat, metadata", nil},
	{[]string{"heart", "beat"}, "renewer", nil},
	{[]string{"law", "laws", "lawful"}, "contract", nil},
	{[]string{"ledger", "ledgers"}, "lock table", nil},
	{[]string{"mail", "mails"}, "notification", regexp.MustCompile(`cron|each night`)}, // for cron
	{[]string{"pump", "pumps"}, "pipeliner", nil},
	{[]string{"gather", "gathers", "gathered"}, "batch, coalesce", regexp.MustCompile(`contrib/dibsprom`)},                         // in the Prometheus client
	{[]string{"shard", "shards"}, "slot state", regexp.MustCompile(`internal/test/redistest|PubSubShardNumSub|cluster\\\|shards`)}, // in Redis Cluster
	{[]string{"ballot", "ballots", "who most"}, "vote request, relinquish", nil},
	{[]string{"debt", "debts", "errand", "errands"}, "redelivery", nil},
	{[]string{"born", "birth", "rebirth"}, "incarnation", nil},
	{[]string{"journey", "journeys"}, "round trip", nil},
	{[]string{"guardian", "guard process"}, "watchdog process", nil},
	{[]string{"taken away", "took away"}, "lost", nil},
	{[]string{"foreign value", "err foreign"}, "wrong type", regexp.MustCompile(`CHANGELOG`)},
	{[]string{"so many", "as many as it wants", "look again", "tell again"}, "plain English", nil},
}

// vague contains words without a particular meaning. No function's name begins with such a word.
var vague = []string{"look", "take", "tell", "ask", "settle", "share", "note", "have"}

// words returns a line's words, in lower case, with a single space around each. Identifiers such as
// lastRetry and last_retry are two words.
func words(line string) string {
	var b strings.Builder
	b.WriteByte(' ')
	previous := ' '
	for _, r := range line {
		switch {
		case strings.ContainsRune(",;:.()", r):
			b.WriteString(" ; ") // no term goes beyond it
			r = ' '
		case !unicode.IsLetter(r):
			r = ' '
		case unicode.IsUpper(r) && unicode.IsLower(previous):
			b.WriteByte(' ')
		}
		if r != ' ' || previous != ' ' {
			b.WriteRune(unicode.ToLower(r))
		}
		previous = r
	}
	b.WriteByte(' ')
	return strings.Join(append([]string{""}, append(strings.Fields(b.String()), "")...), " ")
}

// violations returns the problems in a file's line.
func violations(path, line string) (found []string) {
	if !suspicious(strings.ToLower(line)) {
		return nil
	}
	text := words(line)
	for _, r := range glossary {
		if r.except != nil && (r.except.MatchString(path) || r.except.MatchString(line)) {
			continue
		}
		for _, term := range r.terms {
			if strings.Contains(text, " "+term+" ") {
				found = append(found, fmt.Sprintf("%q: use %s", term, r.instead))
			}
		}
	}
	return found
}

// suspicious reports whether a line, in lower case, may contain a replaced term. Most lines
// do not, and need not be divided into words.
func suspicious(text string) bool {
	for _, r := range glossary {
		for _, term := range r.terms {
			rest := text
			found := true
			for _, word := range strings.Fields(term) {
				_, rest, found = strings.Cut(rest, word)
				if !found {
					break
				}
			}
			if found {
				return true
			}
		}
	}
	return false
}

// files calls f with each text file in the repository, except this file.
func files(t *testing.T, f func(path string, text []byte)) {
	t.Helper()
	root := filepath.Join("..", "..", "..")
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "glossary" || strings.HasPrefix(d.Name(), ".") && len(d.Name()) > 2):
			return fs.SkipDir
		case d.IsDir() || !slices.Contains([]string{".go", ".lua", ".md", ".txtar", ".txt"}, filepath.Ext(path)):
			return nil
		}
		text, err := os.ReadFile(path)
		if err == nil {
			f(path, text)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestNoReplacedTerms(t *testing.T) {
	n := 0
	files(t, func(path string, text []byte) {
		n++
		for i, line := range strings.Split(string(text), "\n") {
			for _, v := range violations(path, line) {
				t.Errorf("%s:%d: %s", path, i+1, v)
			}
		}
	})
	if n < 300 {
		t.Errorf("%d files read: are they where this test expects them?", n)
	}
}

func TestFunctionsSayWhatTheyDo(t *testing.T) {
	files(t, func(path string, text []byte) {
		if filepath.Ext(path) != ".go" {
			return
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, path, text, parser.SkipObjectResolution)
		if err != nil {
			t.Error(err)
			return
		}
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			first := strings.Fields(words(f.Name.Name))[0]
			if slices.Contains(vague, first) {
				t.Errorf("%s: %s: a name that begins with %q says nothing in particular", set.Position(f.Pos()), f.Name.Name, first)
			}
		}
	})
}

// The check finds the terms in texts and in each form of identifier.
func TestViolations(t *testing.T) {
	for _, line := range []string{
		"// A ballot is sent to each node.", "func (s *Store) payDebts() {", "local place_in_ledger = 1",
		"the lease is given back", "Signs of life keep the entry", "type Claim struct {", "it hands on the lock",
	} {
		if len(violations("x.go", line)) == 0 {
			t.Errorf("nothing found in %q", line)
		}
	}
	for _, line := range []string{"local ms = math.floor(now / 1000)", "designs", "// It signals the group.", "a disclaimer", "a floored value"} {
		if v := violations("x.go", line); len(v) > 0 {
			t.Errorf("%q: %v", line, v)
		}
	}
}
