package doctor

import "testing"

// What no test server can be: old, another product, or with a clock of its own.
func TestServer(t *testing.T) {
	for _, c := range []struct {
		facts facts
		want  string
	}{
		{facts{version: "PostgreSQL 15.4 on x86_64-pc-linux-gnu", number: 150004}, ""},
		{facts{version: "PostgreSQL 12.0", number: 120000}, ""},
		{facts{version: "PostgreSQL 11.22", number: 110022}, "version"},
		{facts{version: "CockroachDB CCL v23.1", number: 130000}, "server"},
		{facts{version: "PostgreSQL 11.2-YB-2.20", number: 120000}, "server"},
		{facts{}, ""},
	} {
		e := &examination{facts: c.facts}
		e.checkServer()
		switch {
		case c.want == "" && len(e.Found) == 0:
		case len(e.Found) != 1 || e.Found[0].Subject != c.want:
			t.Errorf("%+v: want %q, found:\n%v", c.facts, c.want, e.Found)
		}
	}
}

// The texts of all tables and functions are found, whatever the name of the schema.
func TestTextsOfTheSchema(t *testing.T) {
	for _, schema := range []string{"dibs", `my "locks"`} {
		tables, functions := tablesOf(schema), functionsOf(schema)
		if len(tables) != 6 || len(functions) < 20 || functions["waiter_ttl"] == "" || functions["lock"] == "" {
			t.Errorf("%s: tables %q, %d functions", schema, tables, len(functions))
		}
	}
}
