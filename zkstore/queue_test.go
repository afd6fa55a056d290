package zkstore

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/dibslock/dibs/driver"
)

// randomQueue returns a queue of entries with random weights.
func randomQueue(random *rand.Rand) (q queue) {
	for i := range random.IntN(8) {
		q = append(q, randomEntry(random, int32(i+1)))
	}
	return q
}

func randomEntry(random *rand.Rand, seq int32) entry {
	limit := 1 + random.IntN(4)
	n := node{id: idOf(fmt.Sprint(seq)), weight: 1 + random.IntN(limit), limit: limit, seq: seq}
	return entry{n, Curator.nameOf(n)}
}

// Holders exclude each other by their weights. A holder stays a holder when entries join or leave.
func TestHolders(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		q := randomQueue(random)
		granted := q.granted()
		held := 0
		for i, e := range q[:granted] {
			held += e.weight
			if held > e.limit || granted > 1 && e.exclusive() {
				t.Fatalf("%+v: holder %d does not fit", q[:granted], i)
			}
		}
		if len(q) > 0 && granted == 0 {
			t.Fatalf("%+v: no holder", q)
		}
		if more := append(q[:len(q):len(q)], randomEntry(random, 100)); more.granted() < granted {
			t.Fatalf("%+v: %d holders, and %d when another joined", q, granted, more.granted())
		}
		if len(q) == 0 {
			continue
		}
		left := random.IntN(len(q))
		rest := append(q[:left:left], q[left+1:]...)
		want := granted
		if left < granted {
			want--
		}
		if rest.granted() < want {
			t.Fatalf("%+v: %d holders, and %d when %d left", q, granted, rest.granted(), left)
		}
	}
}

// A node's name has the same parts when it is read, in each format.
// While its blockers exist, an entry does not become a holder, whichever others leave.
func TestBlockers(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(3, 4))
	for range 20_000 {
		q := randomQueue(random)
		if q.granted() == len(q) {
			continue
		}
		i := q.granted() + random.IntN(len(q)-q.granted())
		own, blockers := q[i], q.blockers(i)
		left := slices.DeleteFunc(slices.Clone(q), func(e entry) bool {
			return e.seq != own.seq && blockers.find(e.name) < 0 && random.IntN(2) == 0
		})
		if at := left.find(own.name); len(blockers) == 0 || at < left.granted() {
			t.Fatalf("%+v: %+v holds the name in %+v", q, own, left)
		}
	}
}

func TestNodeNames(t *testing.T) {
	t.Parallel()
	for format := range formats {
		for _, n := range []node{
			{weight: 1, limit: 1}, {weight: 1, limit: driver.Unlimited}, {weight: driver.Unlimited, limit: driver.Unlimited}, {weight: 2, limit: driver.Unlimited},
			{weight: 3, limit: 10, moves: 12}, {weight: 1, limit: 1, persistent: true}, {weight: 1, limit: driver.Unlimited, persistent: true, moves: 1},
		} {
			for _, seq := range []int32{0, 7, 1_234_567_890, math.MaxInt32, math.MinInt32, -1, -1_000_000_000} {
				n.id, n.seq = idOf("token"), seq
				name := format.nameOf(n)
				if have, ok := parseNode(name); !ok || have != n {
					t.Errorf("%s: %+v, %v, want %+v", name, have, ok, n)
				}
			}
		}
	}
}

// ZooKeeper's sequence numbers overflow. Then the order stays.
func TestOverflowOfSequenceNumbers(t *testing.T) {
	t.Parallel()
	var names []string
	for _, seq := range []int32{math.MaxInt32 - 1, math.MaxInt32, math.MinInt32, math.MinInt32 + 1} {
		names = append(names, fmt.Sprintf("lock-%010d", seq)) // as ZooKeeper formats them
	}
	shuffled := slices.Clone(names)
	slices.Reverse(shuffled)
	q, strange := readQueue(shuffled)
	if strange != "" {
		t.Fatalf("%s is no entry", strange)
	}
	for i, e := range q {
		if e.name != names[i] {
			t.Errorf("entry %d is %s, want %s", i, e.name, names[i])
		}
	}
}

// A child without a sequence number is no entry.
func TestStrangeChildren(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"", "leases", "x-007", "lock-", "lock-12345678901", "lock-000000000x", "lock-+000000001", "lock-0000000 01", "lock-9999999999", "%", "lock-٠٠٠٠٠٠٠٠٠٧"} {
		if n, ok := parseNode(name); ok {
			t.Errorf("%q: %+v", name, n)
		}
	}
}

// Any name of another program's entry excludes others: it is exclusive, or a reader.
func FuzzNode(f *testing.F) {
	for format := range formats {
		f.Add(format.nameOf(node{id: idOf("t"), weight: 2, limit: 5, moves: 3, seq: 7}))
	}
	f.Add("_c_00112233-4455-6677-8899-aabbccddeeff-__READ__0000000003")
	f.Add("lock-0000000001")
	f.Fuzz(func(t *testing.T, name string) {
		n, ok := parseNode(name)
		if !ok {
			return
		}
		if n.weight < 1 || n.weight > n.limit || n.limit > driver.Unlimited || n.foreign() && !n.exclusive() && n.limit != driver.Unlimited {
			t.Errorf("%q: %+v", name, n)
		}
	})
}

// Each name has its own znode, which ZooKeeper accepts.
func FuzzEscape(f *testing.F) {
	for _, name := range []string{"order:42", "a/b", "50%", ".", "..", "\x00", "\xff", "é", "\ue000", "\ufffe", "%base", "%2F", "\U0001F600"} {
		f.Add(name)
	}
	keys := layout{"/locks"}
	f.Fuzz(func(t *testing.T, name string) {
		node := escape(name)
		if strings.ContainsAny(node, "/") || node == "." || node == ".." || strings.ContainsFunc(node, isForbidden) {
			t.Errorf("%q: ZooKeeper does not accept %q", name, node)
		}
		for _, internal := range []string{keys.base(), keys.clock(), keys.letters()} {
			if keys.queue(name) == internal {
				t.Errorf("%q: the znode %s is internal", name, internal)
			}
		}
		if have, ok := keys.nameOf(node); !ok || have != name {
			t.Errorf("%q: %q, %v", name, have, ok)
		}
	})
}
