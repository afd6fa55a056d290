package redisconn

import (
	"reflect"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	node := func(host any, port int) []any { return []any{host, int64(port), "id"} }
	reply := []any{
		[]any{int64(0), int64(5), node("10.0.0.1", 1), node("10.0.0.9", 9)},
		[]any{int64(6), int64(7), node("", 2)},
		[]any{int64(8), int64(8), node("?", 3), node(nil, 4)},
		[]any{int64(9), int64(9), node("fe80::1", 3)},
	}
	want := []SlotRange{
		{0, 5, "10.0.0.1:1"},
		{6, 7, "10.0.0.7:2"},
		{8, 8, "10.0.0.7:3"},
		{9, 9, "[fe80::1]:3"},
	}
	got, err := ParseSlots(reply, "10.0.0.7:7")
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v, %v, want %v", got, err, want)
	}
}

func TestParseNonsense(t *testing.T) {
	for what, reply := range map[string]any{
		"nothing": nil, "no ranges": []any{}, "text": "OK", "no list": []any{"nonsense"},
		"no nodes":   []any{[]any{int64(1), int64(2)}},
		"empty node": []any{[]any{int64(1), int64(2), []any{}}},
		"no numbers": []any{[]any{"1", "2", []any{"host", int64(1)}}},
	} {
		if ranges, err := ParseSlots(reply, "10.0.0.7:7"); err == nil || !strings.Contains(err.Error(), "10.0.0.7:7") {
			t.Errorf("%s: %v, %v, want an error with the node's address", what, ranges, err)
		}
	}
}

func TestFind(t *testing.T) {
	ranges := []SlotRange{{0, 5, "a"}, {7, 7, "b"}}
	for slot, want := range map[int]string{0: "a", 5: "a", 6: "", 7: "b", 8: ""} {
		r, ok := FindSlot(ranges, slot)
		if ok != (want != "") || ok && r.Master != want {
			t.Errorf("slot %d: %v, %v, want the range of %q", slot, r, ok, want)
		}
	}
}
