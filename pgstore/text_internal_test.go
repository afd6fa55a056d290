package pgstore

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// A database without Unicode refuses other statements.
func TestStatementsAreASCII(t *testing.T) {
	statements, err := SQL("dibs", 0, Version)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range strings.Join(statements, "") {
		if r >= utf8.RuneSelf {
			t.Errorf("the statements of the schema contain %q", r)
		}
	}
}

func FuzzText(f *testing.F) {
	for _, s := range []string{"", "order:42", `a\b`, `\41`, "Größe", "名前", "🔒", "\x00", "\xff", `\`, `\4`} {
		f.Add(s, s+"x")
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		text := toText(a)
		if back := fromText(text); back != a {
			t.Errorf("%q became %q, and then %q", a, text, back)
		}
		if strings.ContainsFunc(text, func(r rune) bool { return r == 0 || r >= 0x80 }) {
			t.Errorf("%q became %q, which is not ASCII", a, text)
		}
		if (a == b) != (text == toText(b)) {
			t.Errorf("%q and %q became %q and %q", a, b, text, toText(b))
		}
	})
}
