package dibs

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the table of options in docs/guide.md")

// The table in the guide agrees with optionRules.
func TestGuideHasTheOptionTable(t *testing.T) {
	const path = "docs/guide.md"
	read, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	table := regexp.MustCompile(`(?s)<!-- option table:.*?-->\n.*?<!-- end of the option table -->`)
	found := table.FindAllIndex(read, -1)
	if len(found) != 1 {
		t.Fatalf("%s: %d option tables, want one", path, len(found))
	}
	begin, end := found[0][0], found[0][1]
	want := optionTable()
	if have := string(read[begin:end]); have == want {
		return
	}
	if !*update {
		t.Fatalf("%s: the table of options is not that of optionRules: go test -run %s . -update", path, t.Name())
	}
	if err := os.WriteFile(path, slices.Concat(read[:begin], []byte(want), read[end:]), 0o644); err != nil {
		t.Fatal(err)
	}
}

// optionTable returns the guide's table. Options with a meaning in the same places share a row.
func optionTable() string {
	var b strings.Builder
	b.WriteString("<!-- option table: written by go test -run TestGuideHasTheOptionTable . -update -->\n| |")
	for _, text := range placeTexts {
		b.WriteString(" " + text.column + " |")
	}
	b.WriteString("\n|---|" + strings.Repeat(":-:|", int(placeCount)) + "\n")
	for i, rule := range optionRules {
		samePlaces := func(other optionRule) bool { return other.name != "" && other.places == rule.places }
		if rule.name == "" || slices.ContainsFunc(optionRules[:i], samePlaces) {
			continue
		}
		var names []string
		for _, other := range optionRules[i:] {
			if samePlaces(other) {
				names = append(names, "`"+other.name+"`")
			}
		}
		b.WriteString("| " + strings.Join(names, ", ") + " |")
		for p := range placeCount {
			mark := " |"
			if rule.places.has(p) {
				mark = " ✓ |"
			}
			b.WriteString(mark)
		}
		b.WriteByte('\n')
	}
	b.WriteString("<!-- end of the option table -->")
	return b.String()
}

// ParseOptions' comment lists each key, with the option that it makes.
func TestParseOptionsIsDocumented(t *testing.T) {
	source, err := os.ReadFile("parseoptions.go")
	if err != nil {
		t.Fatal(err)
	}
	example := [...]string{aDuration: `=(\S+)`, aNumberAndDuration: `=(\S+)`, aText: `=(\S+)`, noArguments: `()`}
	for _, rule := range optionRules {
		if rule.key == "" {
			continue
		}
		line := regexp.MustCompile(fmt.Sprintf(`(?m)^//\t(%s%s) +%s\b`, rule.key, example[rule.takes], rule.name))
		found := line.FindSubmatch(source)
		if found == nil {
			t.Errorf("the comment of ParseOptions has no line for %s and %s", rule.key, rule.name)
			continue
		}
		if options, err := ParseOptions(string(found[1])); err != nil || len(options) != 1 || optionRules[options[0].id].name != rule.name {
			t.Errorf("%s: %v, %v", found[1], options, err)
		}
	}
}

// Each rejection says where the option has a meaning.
func TestRejectionsNameAPlace(t *testing.T) {
	// The place that each text names.
	names := map[string]place{
		"New": toNew, "Lock or Do": toCall, "the call that acquires": toCall, "Lease.Extend": toYield, "interval given to Once": toOnce, "give it to Once": toOnce,
	}
	for _, rule := range optionRules {
		for p := range placeCount {
			if rule.name == "" || rule.places.has(p) {
				continue
			}
			why := rule.whyNot(p)
			named := false
			for text, of := range names {
				named = named || strings.Contains(why, text) && (rule.places.has(of) || of == toYield || of == toOnce)
			}
			if !named {
				t.Errorf("%s given to %s: %q names no place", rule.name, p.of("n"), why)
			}
		}
	}
}

// A Place is where an option is given.
type Place = place

// The lock's and the call's places.
var (
	LockAndCall = [2]Place{toLock, toCall}
	LockAndMany = [2]Place{toLock, toMany}
	LockAndTry  = [2]Place{toLock, toTry}
	OnceAndDo   = [2]Place{toOnce, toOnceDo}
	NoneYield   = [2]Place{toNew, toYield}
	NoneAttach  = [2]Place{toNew, toAttach}
)

// OptionNames returns all options' names.
func OptionNames() (names []string) {
	for _, rule := range optionRules {
		if rule.name != "" {
			names = append(names, rule.name)
		}
	}
	return names
}

// PlacesOf returns whether an option has a meaning for New, and in these two places.
func PlacesOf(option string, places [2]Place) (ofNew, ofLock, ofCall bool) {
	i := slices.IndexFunc(optionRules[:], func(rule optionRule) bool { return rule.name == option })
	has := optionRules[i].places
	return has.has(toNew), has.has(places[0]), has.has(places[1])
}
