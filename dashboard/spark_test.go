package dashboard

import (
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dibslock/dibs/memstore"
)

func TestSparks(t *testing.T) {
	now := time.Date(2030, 1, 1, 12, 0, 30, 0, time.UTC)
	points := []point{
		{At: now.Add(-2 * time.Hour), Held: 1000},
		{At: now.Add(-59 * time.Minute), Held: 5, Over: 10 * time.Second, Grants: 25},
		{At: now.Add(-time.Minute), Held: 10, Longest: time.Minute},
		{At: now.Add(-time.Minute + time.Second), Held: 2},
		{At: now, Held: 0},
	}
	have := sparksOf(points, now)
	if sparksOf(nil, now) != nil || len(have) != 4 {
		t.Fatalf("%+v", have)
	}
	for i, want := range []spark{
		{"held", "10", "M1 24v-12M117 24v-24M119 24v-1"},
		{"waiting", "0", "M1 24v-1M117 24v-1M119 24v-1"},
		{"longest wait", "1m00s", "M1 24v-1M117 24v-24M119 24v-1"},
		{"grants seen a second", "2.5", "M1 24v-24M117 24v-1M119 24v-1"},
	} {
		if have[i] != want {
			t.Errorf("have %+v\nwant %+v", have[i], want)
		}
	}
}

var anySpark = regexp.MustCompile(`<svg class="spark".*?</svg>`)

// The list shows the last hour, also if nothing is held. It changes at a new point only.
func TestSparksOfTheList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := recorded(t, memstore.New(), Config{})
		wantNoText(t, body(t, h, ""), "in the last hour")
		time.Sleep(2 * pointTime)
		page := body(t, h, "")
		wantText(t, page, "Nothing is held.", `aria-label="held in the last hour, most 0"`, `data-spark="grants seen a second"`)
		sparks := func() string { return strings.Join(anySpark.FindAllString(body(t, h, "fragment?view=list"), -1), "\n") }
		before := sparks()
		time.Sleep(5 * time.Second)
		if after := sparks(); before != after {
			t.Errorf("before\n%s\nafter\n%s", before, after)
		}
	})
}
