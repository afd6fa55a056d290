package dashboard

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/memstore"
)

// A filter should select the same names as a store's List.
func TestGlobIsThatOfList(t *testing.T) {
	names := []string{"a", "b", "a/b", "a/b/c", "order:42", "order:4", "[x]", `back\slash`, "größe", "*"}
	s := memstore.New()
	for _, name := range names {
		acquire(t, s, name, tokenOf("web", 1, driver.KindMutex, 1, ""))
	}
	for _, pattern := range []string{"*", "a*", "a/*", "?", "order:?", "[ab]", "[a-c]", "[^a]", `\[x\]`, `\*`, "a", "gr??e", "", "[a", "a[", `\`, "[]", "nothing"} {
		var have []string
		g, err := parseGlob(pattern)
		for _, name := range names {
			if err == nil && g.Matches(name) {
				have = append(have, name)
			}
		}
		want, wantErr := s.List(t.Context(), pattern)
		if pattern == "" {
			want, wantErr = names, nil
		}
		slices.Sort(have)
		want = slices.Sorted(slices.Values(want))
		if !slices.Equal(have, want) || (err != nil) != (wantErr != nil) {
			t.Errorf("%q: want %q, %v, have %q, %v", pattern, want, wantErr, have, err)
		}
		if err != nil && !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("%q: want ErrInvalid, have %v", pattern, err)
		}
	}
	if _, err := parseGlob(strings.Repeat("*", driver.MaxName+1)); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("a long pattern: %v", err)
	}
}
