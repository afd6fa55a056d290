package checkup

import (
	"testing"
)

func TestSameCode(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		a, b string
		same bool
	}{
		{"a;\n  b", "a; b\n", true},
		{"a; -- one\n-- two\n--\nb", "a;\nb", true},
		{"a; --\tone", "a;", true},
		{"a; -- it's one\r\nb; -- it's two\r\nc", "a; b; c", true},
		{"a /* one\n * two */ b", "a b", true},
		{"a -- one\nb", "a", false},
		{"a -- one\nb", "a -- one b", false},
		{"5 --1", "5", false},
		{"'-- a'", "'-- b'", false},
		{"'/* a */'", "''", false},
		{`"-- a" b`, `"-- a" c`, false},
		{"`-- a` b", "`-- a` c", false},
		{"'it''s' -- one", "'it''s'", true},
		{"a /*! b */", "a", false},
		{"a /*M! b */", "a", false},
	} {
		if have := sameCode(c.a, c.b); have != c.same {
			t.Errorf("%q and %q: have %t, want %t", c.a, c.b, have, c.same)
		}
	}
}
