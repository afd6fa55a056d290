package dashboard

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/dibslock/dibs/internal/watch"
	"github.com/dibslock/dibs/memstore"
)

// The fragments of a frame are bounded. Those that are not kept are rendered again.
func TestFragmentsOfAFrame(t *testing.T) {
	f := newFrame(&watch.Snapshot{})
	rendered := 0
	for range 2 {
		for i := range maxFragments + 10 {
			text, err := f.fragment(fragmentKey{query: query{glob: fmt.Sprint(i)}}, func() ([]byte, error) {
				rendered++
				return fmt.Append(nil, i), nil
			})
			if err != nil || string(text.html) != fmt.Sprint(i) {
				t.Fatalf("fragment %d: %v, %v", i, text, err)
			}
		}
	}
	if want := maxFragments + 2*10; rendered != want || len(f.fragments) != maxFragments {
		t.Errorf("%d rendered, want %d; %d kept", rendered, want, len(f.fragments))
	}
}

// The frame of the newest snapshot is kept, whoever comes late.
func TestFrames(t *testing.T) {
	var all frames
	one, two := &watch.Snapshot{Number: 1}, &watch.Snapshot{Number: 2}
	first := all.of(one)
	if all.of(one) != first {
		t.Error("another frame for the same snapshot")
	}
	second := all.of(two)
	if all.of(one).snapshot != one || all.of(two) != second {
		t.Error("a late reader has replaced the frame")
	}
}

// A fragment is kept for others, so a request that has ended does not spoil it.
func TestFragmentOfAnEndedRequest(t *testing.T) {
	h := New(memstore.New(), Config{}).(*handler)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	text, err := h.rendered(ctx, newFrame(&watch.Snapshot{}), query{view: viewName, name: "free"}, nil)
	if err != nil || !strings.Contains(string(text.html), "is free") {
		t.Errorf("%v, %v", text, err)
	}
}
