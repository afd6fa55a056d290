package wire

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/redisstore/redisconn"
)

func TestTagged(t *testing.T) {
	for key, want := range map[string]bool{"": false, "foo": false, "{}": false, "a{b}": true, "a{b": false} {
		if have := Tagged(key); have != want {
			t.Errorf("Tagged(%q) = %v, want %v", key, have, want)
		}
	}
}

func TestSlotTags(t *testing.T) {
	largest := uint32(0)
	for s := range redisconn.SlotCount {
		tag := slotTag(s)
		if have := redisconn.SlotOf(fmt.Sprint(tag)); have != s {
			t.Fatalf("slotTag(%d) = %d, which hashes to %d", s, tag, have)
		}
		largest = max(largest, tag)
	}
	// Each tag is the first in the enumeration: no smaller number hashes there.
	for n := range largest {
		if s := redisconn.SlotOf(fmt.Sprint(n)); slotTag(s) > n {
			t.Fatalf("slotTag(%d) = %d, and %d hashes there too", s, slotTag(s), n)
		}
	}
}

func TestKeys(t *testing.T) {
	for _, c := range []struct{ prefix, name, lock, queue, meta string }{
		{"lock:", "a", "lock:a", "{lock:a}:dibs:queue", "{lock:a}:dibs:meta"},
		{"", "a", "a", "{a}:dibs:queue", "{a}:dibs:meta"},
		{"", "a{", "a{", "{a{}:dibs:queue", "{a{}:dibs:meta"},
		{"{shop}:", "a", "{shop}:a", "{shop}:a", "{shop}:a"},
		{"lock:", "{u7}:cart", "lock:{u7}:cart", "lock:{u7}:cart", "lock:{u7}:cart"},
	} {
		k := Format{Prefix: c.prefix}.Keys(c.name)
		lock, queue, meta, highwater, holders := k.Lock, k.Queue, k.Meta, k.Highwater, k.Holders
		// FuzzKeys covers the suffix for a key with its own tag: it must differ from the suffix for
		// a key equal to the tag.
		if lock != c.lock || !strings.HasPrefix(queue, c.queue) || !strings.HasPrefix(meta, c.meta) {
			t.Errorf("%q %q: keys %q, %q, %q", c.prefix, c.name, lock, queue, meta)
		}
		if want := strings.TrimSuffix(queue, queueSuffix) + ":dibs:holders"; holders != want {
			t.Errorf("%q %q: holders %q, want %q", c.prefix, c.name, holders, want)
		}
		if want := fmt.Sprintf("dibs:fence:{%d}", slotTag(redisconn.SlotOf(c.lock))); highwater != want {
			t.Errorf("%q %q: highwater %q, want %q", c.prefix, c.name, highwater, want)
		}
	}
}

func TestRefusedKeys(t *testing.T) {
	for key, ok := range map[string]bool{
		"a":                   true,
		"a{":                  true,
		"{a}":                 true,
		"{a}b}":               true,
		"dibs:fence":          true,
		":dibs:queue:":        true,
		"a}":                  false,
		"{}":                  false,
		"foo{}{bar}":          false,
		"dibs:fence:":         false,
		"dibs:fence:{1}":      false,
		":dibs:queue":         false,
		"{lock:a}:dibs:queue": false,
		"{lock:a}:dibs:meta":  false,
		"a:dibs:holders":      false,
	} {
		if err := CheckKey(key); ok && err != nil || !ok && !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("CheckKey(%q) = %v", key, err)
		}
	}
}

// A lock should share no key with a name that looks like its keys or its tag. With a shared queue,
// a release could grant the wrong lock.
func TestKeysOfTwoNames(t *testing.T) {
	for _, c := range [][2]string{
		{"a", "{a}"}, {"a", "b"}, {"{a}", "{{a}"}, {"{a}", "{a}:"}, {"{a", "{{a}"}, {"{a}:", "{a}"}, {"{a}b", "a"},
	} {
		wantApart(t, Format{}, c[0], c[1])
	}
	wantApart(t, Format{Prefix: "{"}, "x", "{x}")
}

func valid(s Format, name string) bool {
	return driver.CheckName(name) == nil && s.CheckName(name) == nil
}

// wantApart checks that two names share only the high-water mark.
func wantApart(t *testing.T, s Format, one, other string) {
	t.Helper()
	if one == other || !valid(s, one) || !valid(s, other) {
		return
	}
	mine := wantKeys(t, s, one)
	for i, theirs := range wantKeys(t, s, other) {
		for j := range mine {
			if mine[j] == theirs && (i != 3 || j != 3) {
				t.Errorf("prefix %q: names %q and %q share the key %q", s.Prefix, one, other, theirs)
			}
		}
	}
}

// wantKeys checks the keys of a valid name, and returns them.
func wantKeys(t *testing.T, s Format, name string) [5]string {
	t.Helper()
	k := s.Keys(name)
	lock, all := k.Lock, [5]string(k.list())
	if lock != s.Prefix+name {
		t.Errorf("prefix %q, name %q: lock key %q", s.Prefix, name, lock)
	}
	for i, key := range all {
		if s.Proxy && redisconn.HashTag(key) != redisconn.HashTag(lock) {
			t.Errorf("prefix %q, name %q: %q has another hash tag than the lock", s.Prefix, name, key)
		}
		if redisconn.SlotOf(key) != redisconn.SlotOf(lock) {
			t.Errorf("prefix %q, name %q: %q is in slot %d, the lock in %d", s.Prefix, name, key, redisconn.SlotOf(key), redisconn.SlotOf(lock))
		}
		for _, earlier := range all[:i] {
			if key == earlier {
				t.Errorf("prefix %q, name %q: key %q occurs twice", s.Prefix, name, key)
			}
		}
		if i > 0 && CheckKey(key) == nil {
			t.Errorf("prefix %q, name %q: key %q could be a lock key", s.Prefix, name, key)
		}
	}
	// The hot path passes a used buffer, with the same result.
	buf := append(make([]byte, 0, 512), "leftovers of the call before"...)
	joined := s.appendKeys(buf[:0], name)
	again := joined.split(string(joined.text))
	if [5]string(again.list()) != all {
		t.Errorf("prefix %q, name %q: keys %q in a buffer, %q without", s.Prefix, name, [5]string(again.list()), all)
	}
	if (s.Proxy || s.Sharded) && again.Route != s.Route(name) {
		t.Errorf("prefix %q, name %q: routes %v and %v", s.Prefix, name, again.Route, s.Route(name))
	}
	return all
}

// Each key is rejected or in the right slot, and two names share no key except the
// high-water mark.
func FuzzKeys(f *testing.F) {
	for _, names := range [][2]string{
		{"a", "{a}"}, {"a", "{a}:"}, {"foo{}{bar}", "foo{{bar}}zap"}, {"a}", "}{"}, {"{a", "{{a}"},
		{"dibs:fence:{1}", "x:dibs:queue"}, {"\xff", "路\x00"}, {strings.Repeat("n", 512), "{}"},
	} {
		for _, prefix := range []string{"", "lock:", "{shop}:", "{", "}", "dibs:fence:"} {
			f.Add(prefix, names[0], names[1])
		}
	}
	f.Fuzz(func(t *testing.T, prefix, one, other string) {
		s := Format{Prefix: prefix}
		for _, name := range []string{one, other, "{" + one + "}", "{" + prefix + one + "}", one + ":"} {
			if err := errors.Join(driver.CheckName(name), s.CheckName(name)); err != nil {
				if !errors.Is(err, driver.ErrInvalid) {
					t.Errorf("prefix %q, name %q: %v", prefix, name, err)
				}
				continue
			}
			for _, s := range []Format{s, {Prefix: prefix, Sharded: true}, {Prefix: prefix, Proxy: true}} {
				wantKeys(t, s, name)
				wantApart(t, s, one, name)
			}
		}
	})
}
