package pipeline

import (
	"strconv"
	"testing"

	"github.com/dibslock/dibs/redisstore/internal/wire"
)

// Behind a proxy each hash tag has its own pipeline. The number of pipelines stays limited, and a
// pipeline in use remains.
func TestPipelinesOfTags(t *testing.T) {
	s := New(Config{Proxy: true})
	at := func(tag string) *Pipeline { return s.Of(wire.Route{Tag: tag}) }
	used, idle := at("used"), at("idle")
	if used == idle || at("used") != used {
		t.Error("the pipelines of two tags are the same, or that of one is not")
	}
	for i := range 3 * maxRecent {
		at(strconv.Itoa(i))
		if i%100 == 0 && at("used") != used {
			t.Fatalf("a pipeline in use was forgotten after %d tags", i)
		}
	}
	if n := len(s.recent) + len(s.older); n > 2*maxRecent {
		t.Errorf("%d pipelines are kept", n)
	}
	if at("idle") == idle {
		t.Error("a pipeline that was not used is kept")
	}
	if one := New(Config{}); one.Of(wire.Route{Slot: 1}) != one.Of(wire.Route{Slot: 2}) {
		t.Error("a single server has two pipelines")
	}
}
