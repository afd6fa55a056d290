package redistest

import "testing"

func TestSlot(t *testing.T) {
	t.Parallel()
	s := StartClusterNode(t)
	for _, key := range []string{"", "a", "123456789", "{a}b", "b{a}", "{}a", "a{}{b}", "{{a}}", "{a", "a}b{c}", "\x00\xff"} {
		if got, want := Slot(key), s.MustCmd(t, "CLUSTER", "KEYSLOT", key); int64(got) != want {
			t.Errorf("%q: got %d, want %d", key, got, want)
		}
	}
}
