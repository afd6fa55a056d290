package doctor

import (
	"testing"
	"time"

	"github.com/dibslock/dibs/driver"
)

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
		case c.want == "" && len(e.found) == 0:
		case len(e.found) != 1 || e.found[0].Subject != c.want:
			t.Errorf("%+v: want %q, found:\n%v", c.facts, c.want, e.found)
		}
	}
}

func TestClock(t *testing.T) {
	now := time.Now()
	sample := func(host, server time.Duration) timeSample {
		return timeSample{sent: now.Add(host), server: now.Add(host + server), received: now.Add(host + time.Millisecond)}
	}
	for _, c := range []struct {
		start, end timeSample
		want       map[string]driver.Severity
	}{
		{sample(0, 0), sample(time.Second, 0), nil},
		{sample(0, 900*time.Millisecond), sample(time.Second, 900*time.Millisecond), nil},
		{sample(0, time.Hour), sample(time.Second, time.Hour), map[string]driver.Severity{"clock": driver.Note}},
		{sample(0, -time.Hour), sample(time.Second, -time.Hour), map[string]driver.Severity{"clock": driver.Note}},
		{sample(0, 0), sample(time.Second, 500*time.Millisecond), map[string]driver.Severity{"clock-jump": driver.Critical}},
		{sample(0, 500*time.Millisecond), sample(time.Second, 0), map[string]driver.Severity{"clock-jump": driver.Critical}},
	} {
		e := new(examination)
		e.addAll(findingsOfClock(c.start, c.end)...)
		if len(e.found) != len(c.want) {
			t.Errorf("want %v, found:\n%v", c.want, e.found)
		}
		for _, f := range e.found {
			if severity, ok := c.want[f.Subject]; !ok || severity != f.Severity {
				t.Errorf("want %v, found:\n%v", c.want, f)
			}
		}
	}
}

// The texts of all tables and functions are found, whatever the name of the schema.
func TestTextsOfTheSchema(t *testing.T) {
	for _, schema := range []string{"dibs", `my "locks"`} {
		tables, functions := tablesOf(schema), functionsOf(schema)
		if len(tables) != 4 || len(functions) < 20 || functions["waiter_ttl"] == "" || functions["lock"] == "" {
			t.Errorf("%s: tables %q, %d functions", schema, tables, len(functions))
		}
	}
}
