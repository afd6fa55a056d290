package foreign

import (
	"slices"
	"strings"
	"testing"
	"time"
)

const (
	client  = "8743c9c0-0795-4907-87fd-6c719a6b4586" // a Redisson client
	minute  = time.Minute
	never   = time.Duration(-1)
	now     = int64(1_795_345_028_000_000)
	symfony = "qLLh3S+GTuCp8g7G3FvlQoNSz8fuQjI82TIVIqlpysQ="
)

func text(key, value string, ttl time.Duration) Value {
	return Value{Key: key, Bare: true, Type: "string", TTL: ttl, Size: len(value), Items: []Item{{Name: value}}, Now: now}
}

// elements returns a hash or a sorted set from names and values.
func elements(key, kind string, ttl time.Duration, words ...string) Value {
	v := Value{Key: key, Bare: true, Type: kind, TTL: ttl, Size: len(words) / 2, Now: now}
	for pair := range slices.Chunk(words, 2) {
		v.Items = append(v.Items, Item{pair[0], pair[1]})
	}
	return v
}

func TestDescribe(t *testing.T) {
	large := elements("n", "hash", minute, "mode", "read", client+":1", "1")
	large.Size = 1000
	prefixed := func(v Value) Value { v.Bare = false; return v }
	for _, c := range []struct {
		name      string
		value     Value
		kind      string
		lock      bool
		removable bool
		inner     bool
		owners    string // separated by spaces
	}{
		// Strings, as the libraries write them.
		{"Spring, pottery", text("n", client, minute), "lock (string)", true, true, false, client},
		{"redis-py", text("n", "90592d7ae66211f1a06c02fc00000001", minute), "lock (string)", true, true, false, "90592d7ae66211f1a06c02fc00000001"},
		{"redsync", text("n", "W0Vp4C1zZfJwS9bXn3mK2A==", minute), "lock (string)", true, true, false, "W0Vp4C1zZfJwS9bXn3mK2A=="},
		{"python-redis-lock", text("lock:n", "hHXBgQhEe3Kj5rT0vWxYzA1b", minute), "lock (string)", true, true, false, "hHXBgQhEe3Kj5rT0vWxYzA1b"},
		{"ShedLock", text("job-lock:prod:n", "ADDED:2026-11-24T10:00:00.123Z@web-1:"+client, minute), "ShedLock", true, true, false, "ADDED:2026-11-24T10:00:00.123Z@web-1:" + client},
		{"ShedLock, older", text("n", "ADDED:2026-11-24T10:00:00.123Z@web-1", minute), "ShedLock", true, true, false, "ADDED:2026-11-24T10:00:00.123Z@web-1"},
		{"rslock", text("n", "8b\xf3\xb1\x1e\xf2\x9d\x80|\xc9\"\xe1\x10\x9d~\xfa{i`\x00", minute), "lock (string)", true, true, false, "8b\xf3\xb1\x1e\xf2\x9d\x80|\xc9\"\xe1\x10\x9d~\xfa{i`\x00"},
		{"Laravel", text("n", "l18QIdeZ6kmisnAb", minute), "lock (string)", true, true, false, "l18QIdeZ6kmisnAb"},
		{"a text that somebody chose", text("n", "worker 7", minute), "lock (string)", true, true, false, "worker 7"},
		{"empty", text("n", "", minute), "lock (string)", true, true, false, ""},
		{"SETNX without EXPIRE", text("n", client, never), "lock (string)", true, false, false, client},
		{"a text without a TTL, with a prefix", prefixed(text("lock:n", "sesame", never)), "lock (string)", true, false, false, "sesame"},

		// Strings that should not count as locks.
		{"a text without a TTL", text("n", "sesame", never), "string", false, false, false, ""},
		{"RSemaphore", text("n", "3", never), "string", false, false, false, ""},
		{"a counter with a TTL", text("n", "17", minute), "string", false, false, false, ""},
		{"a counter with a prefix", prefixed(text("lock:n", "17", minute)), "string", false, false, false, ""},
		{"a price", text("n", "-17.50", minute), "string", false, false, false, ""},
		{"JSON", text("n", `{"id":42}`, minute), "string", false, false, false, ""},
		{"an array in JSON", text("n", ` [1]`, minute), "string", false, false, false, ""},
		{"an array of PHP", text("n", `a:1:{i:0;i:1;}`, minute), "string", false, false, false, ""},
		{"XML", text("n", "<order/>", minute), "string", false, false, false, ""},
		{"Laravel, packed by PHP", text("n", `s:16:"l18QIdeZ6kmisnAb";`, minute), "string", false, false, false, ""},
		{"Laravel, packed by igbinary", text("n", "\x00\x00\x00\x02\x11\x10l18QIdeZ6kmisnAb", minute), "string", false, false, false, ""},
		{"Laravel, packed by MessagePack", text("n", "\xb0l18QIdeZ6kmisnAb", minute), "string", false, false, false, ""},
		{"Spring's default form", text("n", "\xac\xed\x00\x05t\x00\x04uuid", minute), "string", false, false, false, ""},
		{"bytes", text("n", "\x89PNG\r\n\x1a\n", minute), "string", false, false, false, ""},
		{"two lines", text("n", "one\ntwo", minute), "string", false, false, false, ""},
		{"long", text("n", strings.Repeat("x", maxToken+1), minute), "string", false, false, false, ""},
		{"packed JSON", text("n", "\xac\xed\x00\x05t\x00\x02{}", minute), "string", false, false, false, ""},
		{"not all of it was read", Value{Key: "n", Type: "string", TTL: minute, Size: 9, Items: []Item{{Name: client}}}, "string", false, false, false, ""},

		// Hashes.
		{"RLock", elements("n", "hash", minute, client+":40", "1"), "Redisson RLock", true, true, false, client + ":40"},
		{"RLock, reentrant", elements("n", "hash", minute, client+":40", "3"), "Redisson RLock", true, true, false, client + ":40"},
		{"RLock without a TTL", elements("n", "hash", never, client+":40", "1"), "Redisson RLock", true, false, false, client + ":40"},
		{"RReadWriteLock, readers", elements("n", "hash", minute, "mode", "read", client+":1", "1", client+":2", "2"), "Redisson read lock", true, true, false, client + ":1 " + client + ":2"},
		{"RReadWriteLock, a writer", elements("n", "hash", minute, "mode", "write", client+":1:write", "1"), "Redisson write lock", true, true, false, client + ":1:write"},
		{"RReadWriteLock, a writer that reads", elements("n", "hash", minute, client+":1:write", "1", client+":1", "1", "mode", "write"), "Redisson write lock", true, true, false, client + ":1:write " + client + ":1"},
		{"RReadWriteLock, not all was read", large, "Redisson read lock", true, false, false, client + ":1"},
		{"a lock of dibs in Redisson's form", elements("n", "hash", minute, "web-7:211:q3ZkAAAAAAAAAAAA:x1", "1", "mode", "dibs"), "mutex (redisson)", true, false, false, "web-7:211:q3ZkAAAAAAAAAAAA:x1"},
		{"the same, with a token that the user has chosen", elements("n", "hash", minute, "mode", "dibs", "job-7", "1"), "mutex (redisson)", true, false, false, "job-7"},
		{"an object", elements("n", "hash", minute, "id", "42", "price", "17"), "hash", false, false, false, ""},
		{"an object with a mode", elements("n", "hash", minute, "mode", "read", "id", "42"), "hash", false, false, false, ""},
		{"the mode of dibs, two owners", elements("n", "hash", minute, "mode", "dibs", "job-7", "1", "job-8", "1"), "hash", false, false, false, ""},
		{"a mode alone", elements("n", "hash", minute, "mode", "read"), "hash", false, false, false, ""},
		{"two owners", elements("n", "hash", minute, client+":1", "1", client+":2", "1"), "hash", false, false, false, ""},
		{"an owner without a count", elements("n", "hash", minute, client+":1", "x"), "hash", false, false, false, ""},
		{"a count of zero", elements("n", "hash", minute, client+":1", "0"), "hash", false, false, false, ""},
		{"a large hash", Value{Key: "n", Type: "hash", TTL: minute, Size: 1e6}, "hash", false, false, false, ""},

		// Sorted sets.
		{"Symfony", elements("n", "zset", minute, symfony, "1795345044161", "__write__", "1795345044161"), "zset", false, false, false, ""},
		{"a ranking", elements("n", "zset", never, "alice", "10", "bob", "20"), "zset", false, false, false, ""},

		// Redisson's auxiliary keys, and other types.
		{"unlock latch", text("redisson_unlock_latch:{n}:4955bc3a56f677a1444a6110a553d8f7", "1", minute), "auxiliary key of another library", false, false, true, ""},
		{"fencing counter", text("redisson_lock_token:{n}", "17", never), "auxiliary key of another library", false, false, true, ""},
		{"read hold", text("{n}:"+client+":1:rwlock_timeout:1", "1", minute), "auxiliary key of another library", false, false, true, ""},
		{"fair queue", Value{Key: "redisson_lock_queue:{n}", Type: "list", TTL: never, Size: 1}, "auxiliary key of another library", false, false, true, ""},
		{"fair timeouts", elements("redisson_lock_timeout:{n}", "zset", never, client+":1", "1795345044161"), "auxiliary key of another library", false, false, true, ""},
		{"signal", Value{Key: "lock-signal:n", Type: "list", TTL: minute, Size: 1}, "auxiliary key of another library", false, false, true, ""},
		{"list", Value{Key: "n", Type: "list", TTL: minute, Size: 1}, "list", false, false, false, ""},
		{"set", Value{Key: "n", Type: "set", TTL: minute, Size: 1}, "set", false, false, false, ""},
		{"stream", Value{Key: "n", Type: "stream", TTL: minute, Size: 1}, "stream", false, false, false, ""},
		{"a module", Value{Key: "n", Type: "ReJSON-RL", TTL: minute}, "ReJSON-RL", false, false, false, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := Describe(c.value)
			var owners []string
			for _, h := range d.Holders {
				owners = append(owners, h.Token)
			}
			if d.Kind != c.kind || d.Lock != c.lock || d.Removable(c.value) != c.removable || d.Inner != c.inner || strings.Join(owners, " ") != c.owners {
				t.Errorf("have %+v, removable %v, want %+v", d, d.Removable(c.value), c)
			}
			wantConsistent(t, c.value, d)
		})
	}
}

// wantConsistent checks properties that every description should have.
func wantConsistent(t *testing.T, v Value, d Description) {
	t.Helper()
	switch {
	case d.Kind == "" && v.Type != "":
		t.Error("no kind")
	case d.Inner && d.Lock:
		t.Errorf("%+v: an auxiliary key is not a lock", d)
	case d.Lock != (len(d.Holders) > 0) || d.Holding < len(d.Holders):
		t.Errorf("%+v: a lock has owners, and nothing else has", d)
	case d.Removable(v) && (!d.Lock || v.TTL < 0 || v.Type != "string" && v.Type != "hash"):
		t.Errorf("%+v of %+v: not to be deleted", d, v)
	case v.complete() && d.Lock && d.Holding != len(d.Holders):
		t.Errorf("%+v: %d owners", d, d.Holding)
	case d.Release.Channel != "" && v.Type != "hash":
		t.Errorf("%+v: a rule of Redisson", d)
	}
	for _, own := range []bool{false, true} {
		advice := d.Advice(v, own)
		if advice == "" || strings.Contains(advice, "dibs unlock") != (d.Removable(v) && !own) {
			t.Errorf("advice %q, removable %v", advice, d.Removable(v))
		}
	}
}

// FuzzDescribe describes any content. Numbers, documents, and keys without a TTL are never
// removable.
func FuzzDescribe(f *testing.F) {
	f.Add("n", "string", client, "", int64(minute), 36, false)
	f.Add("n", "string", "17", "", int64(minute), 2, true)
	f.Add("n", "hash", client+":40", "1", int64(minute), 1, true)
	f.Add("n", "hash", "mode", "read", int64(-1), 1, true)
	f.Add("n", "zset", symfony, "1795345044161", int64(minute), 1, false)
	f.Add("redisson_lock_queue:{n}", "list", "", "", int64(-1), 3, true)
	f.Add("n", "string", "\xac\xed\x00\x05t\x00\x04uuid", "", int64(minute), 11, true)
	f.Fuzz(func(t *testing.T, key, kind, name, value string, ttl int64, size int, bare bool) {
		v := Value{Key: key, Bare: bare, Type: kind, TTL: time.Duration(ttl), Size: max(size, 1), Items: []Item{{name, value}}, Now: now}
		d := Describe(v)
		wantConsistent(t, v, d)
		if kind == "string" && d.Removable(v) && (number().MatchString(name) || strings.HasPrefix(name, "{") || len(name) > maxToken) {
			t.Errorf("%q is removable", name)
		}
		for _, h := range d.Holders {
			if h.Token != name || h.Remaining < 0 && ttl >= 0 {
				t.Errorf("%q is held by %+v", name, h)
			}
		}
	})
}

func TestRuleOfRedisson(t *testing.T) {
	for _, c := range []struct {
		value Value
		want  Rule
	}{
		{elements("order:42", "hash", minute, client+":1", "1"), Rule{"redisson_lock__channel:{order:42}", "0", "redisson_lock_queue:{order:42}"}},
		{elements("{user:7}:cart", "hash", minute, client+":1", "1"), Rule{"redisson_lock__channel:{user:7}:cart", "0", "redisson_lock_queue:{user:7}:cart"}},
		{elements("n", "hash", minute, "mode", "read", client+":1", "1"), Rule{"redisson_rwlock:{n}", "0", ""}},
		{elements("n", "hash", minute, "mode", "write", client+":1:write", "1"), Rule{"redisson_rwlock:{n}", "1", ""}},
		{text("n", client, minute), Rule{}},
	} {
		if have := Describe(c.value).Release; have != c.want {
			t.Errorf("%q: %+v, want %+v", c.value.Key, have, c.want)
		}
	}
}

func TestIsDibs(t *testing.T) {
	for value, want := range map[string]bool{
		"web-1:4242:kFLLirqc6sneINPI:x1":                true,
		"web-1:4242:kFLLirqc6sneINPI:x1:nightly backup": true,
		"web-1:4242:kFLLirqc6sneINPI:x1 reserved":       true,
		"dibs:shared 3":                true,
		"dibs:shared x":                false,
		"web-1:4242:short:x1":          false,
		"web-1:-1:kFLLirqc6sneINPI:x1": false,
		client:                         false,
		"ADDED:2026-11-24T10:00:00.123Z@web-1:" + client: false,
		"": false,
	} {
		if IsDibs(value) != want {
			t.Errorf("%q: %v", value, !want)
		}
	}
}

func TestIsInner(t *testing.T) {
	for key, want := range map[string]bool{
		"redisson_lock_token:{n}": true, "redisson_lock_queue:{n}": true, "redisson_unlock_latch:{n}:1": true,
		"{n}:8743c9c0:1:rwlock_timeout:1": true, "n": false, "redisson_lock_token": false, "lock:n": false,
	} {
		if IsInner(key) != want {
			t.Errorf("%q: %v", key, !want)
		}
	}
}
