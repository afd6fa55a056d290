package redistest

import "testing"

func TestSlot(t *testing.T) {
	t.Parallel()
	s := StartClusterNode(t)
	for _, key := range []string{"", "a", "123456789", "{a}b", "b{a}", "{}a", "a{}{b}", "{{a}}", "{a", "a}b{c}", "\x00\xff"} {
		if have, want := Slot(key), s.MustCmd(t, "CLUSTER", "KEYSLOT", key); int64(have) != want {
			t.Errorf("%q: have %d, want %d", key, have, want)
		}
	}
}
