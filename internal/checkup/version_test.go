package checkup

import "testing"

func TestFindingsOfVersion(t *testing.T) {
	for _, c := range []struct {
		version, mine int
		want          string
	}{
		{2, 2, ""},
		{1, 2, `the schema "dibs" has version 1 of the tables, but this program needs version 2`},
		{3, 2, `the schema "dibs" has version 3 of the tables, which has removed version 2 of this program`},
	} {
		r := Report{Ctx: t.Context()}
		r.AddAll(FindingsOfVersion(`the schema "dibs"`, c.version, c.mine)...)
		if found := r.Findings(); (c.want == "") != (len(found) == 0) || len(found) == 1 && found[0].What != c.want {
			t.Errorf("version %d for %d: found %v", c.version, c.mine, found)
		}
	}
}
