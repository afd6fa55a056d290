package sqldrill

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
)

// generous is how long a step may take on a busy machine.
const generous = time.Minute

// HostileNames returns n different names in UTF-8, of all kinds.
func HostileNames(n int) []string {
	names := []string{"Größe", "Grösse", "名前", "🔒", `a\b`, `a\\b`, `\c3`, "Ã¶", "ö", "o\u0308", "\x00", "a\x00", "a", "A", "a ", "%", "_", "'", `"`, "$$", "\n", "\u202e", "\ufeff"}
	random := rand.New(rand.NewPCG(1, 2))
	for len(names) < n {
		text := make([]rune, 1+random.IntN(40))
		for i := range text {
			text[i] = rune(random.IntN(1 << (4 + random.IntN(13))))
		}
		if name := strings.ToValidUTF8(string(text), "?"); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// TellsNamesApart acquires n hostile names, each by one of two stores. The other store finds them
// held.
func TellsNamesApart(t *testing.T, n int, one, other driver.Store) {
	t.Helper()
	const token = "a:é:名"
	names := HostileNames(n)
	for i, name := range names {
		first, second := one, other
		if i%2 == 0 {
			first, second = other, one
		}
		request := driver.AcquireRequest{Name: name, Token: token, Client: "é", TTL: time.Hour, Weight: 1, Limit: 1, Until: time.Now().Add(generous)}
		if reply, err := first.Acquire(t.Context(), request); err != nil || !reply.Held {
			t.Fatalf("%q: %+v, %v", name, reply, err)
		}
		request.Token = "b"
		reply, err := second.Acquire(t.Context(), request)
		if err != nil || reply.Held || reply.Holder != token || reply.Name != name {
			t.Fatalf("%q: %+v, %v", name, reply, err)
		}
	}
	for _, s := range []driver.Store{one, other} {
		list, err := driver.Complete(s).List(t.Context(), "*")
		if err != nil {
			t.Fatal(err)
		}
		if have, want := slices.Sorted(slices.Values(list)), slices.Sorted(slices.Values(names)); !slices.Equal(have, want) {
			t.Errorf("listed %d names, want %d", len(have), len(want))
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), generous)
	defer cancel()
	extends := make([]driver.ExtendRequest, len(names))
	for i, name := range names {
		extends[i] = driver.ExtendRequest{Name: name, Token: token, Client: "é", TTL: time.Hour, Weight: 1, Limit: 1}
	}
	for i, err := range other.Extend(ctx, extends) {
		if err != nil {
			t.Errorf("extend %q: %v", names[i], err)
		}
	}
}

// CarriesTexts hands a lock over, and revokes it, with non-ASCII texts.
func CarriesTexts(t *testing.T, one, other driver.Store) {
	t.Helper()
	a, b := dibs.New(one), dibs.New(other)
	defer a.Close()
	defer b.Close()
	ctx, cancel := context.WithTimeout(t.Context(), generous)
	defer cancel()
	held, err := a.Mutex("Übergabe").Lock(ctx, dibs.Label("größe-名"))
	if err != nil {
		t.Fatal(err)
	}
	waiting := make(chan error, 1)
	var next *dibs.Lease
	go func() {
		var err error
		next, err = b.Mutex("Übergabe").Lock(ctx, dibs.Label("größe-名"))
		waiting <- err
	}()
	for queued := false; !queued; {
		state, err := a.Inspect(ctx, "Übergabe")
		if err != nil {
			t.Fatal(err)
		}
		queued = state.Waiting == 1
	}
	if err := held.Unlock(); err != nil {
		t.Fatal(err)
	}
	if err := <-waiting; err != nil {
		t.Fatal(err)
	}
	if _, err := a.Revoke(ctx, "Übergabe", dibs.Holder{Fence: next.Fence()}, "Wartung: 保守"); err != nil {
		t.Fatal(err)
	}
	select {
	case <-next.Context().Done():
	case <-ctx.Done():
		t.Fatal("the holder does not learn of the revocation")
	}
	if err := next.Err(); err == nil || !strings.Contains(err.Error(), "Wartung: 保守") {
		t.Errorf("have %v, want the reason", err)
	}
}
