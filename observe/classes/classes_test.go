package classes_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/dibslock/dibs/observe/classes"
)

func TestOf(t *testing.T) {
	for name, want := range map[string]string{
		"":                       "",
		"nightly-report":         "nightly-report",
		"order:42":               "order:*",
		"order:42:line:7":        "order:*:line:*",
		"worker7":                "worker*",
		"v2/7.5":                 "v*/*.*",
		"user:deadbeef01":        "user:*",
		"cus_NffrFeUfNV2Hib":     "cus_*",
		"01ARZ3NDEKTSV4RRFFQ69G": "*",
		"a:550e8400-e29b-41d4-a716-446655440000:b":     "a:*:b",
		"a:550E8400-E29B-41D4-A716-446655440000":       "a:*",
		"a:550e8400-e29b-41d4-a716-44665544000":        "a:*-e*b-*d*-a*-*",
		"x\xffy":                                       "x\uFFFDy",
		"größe:9":                                      "größe:*",
		strings.Repeat("a", 100):                       strings.Repeat("a", 64),
		strings.Repeat("ü", 40):                        strings.Repeat("ü", 32),
		strings.Repeat("a", 63) + "ü":                  strings.Repeat("a", 63),
		strings.Repeat("a", 64) + ":1":                 strings.Repeat("a", 64),
		"\u202e<script>alert(1)</script>":              "\u202e<script>alert(*)</script>",
		"order:00000000000000000000000000000000000001": "order:*",
	} {
		if have := classes.Of(name); have != want {
			t.Errorf("the class of %q is %q, want %q", name, have, want)
		}
	}
}

func FuzzOf(f *testing.F) {
	f.Add("order:42", "x\xff")
	f.Add("a:550e8400-e29b-41d4-a716-446655440000", "")
	f.Fuzz(func(t *testing.T, name, custom string) {
		class := classes.Of(name)
		if !utf8.ValidString(class) || len(class) > 64 {
			t.Errorf("the class of %q is %q", name, class)
		}
		if strings.ContainsAny(class, "0123456789") {
			t.Errorf("the class of %q is %q, with a digit", name, class)
		}
		same := func(class string) string { return class }
		of := func(string) string { return custom }
		if have := classes.NewSet(of, 1, same).Of(name); !utf8.ValidString(have) || len(have) > 64 {
			t.Errorf("the class %q became %q", custom, have)
		}
		if have := classes.NewSet(nil, 1, same).Of(name); have != class {
			t.Errorf("a set has %q for the class %q", have, class)
		}
	})
}

func TestSetIsBounded(t *testing.T) {
	var mu sync.Mutex
	made := make(map[string]int)
	set := classes.NewSet(func(name string) string { return name }, 3, func(class string) string {
		mu.Lock()
		defer mu.Unlock()
		made[class]++
		return class
	})
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for i := range 1000 {
				name := fmt.Sprint(i)
				if have := set.Of(name); have != name && have != classes.Other {
					t.Errorf("the class of %q is %q", name, have)
				}
			}
		})
	}
	group.Wait()
	if len(made) != 4 || made[classes.Other] != 1 {
		t.Errorf("made %v, want 3 classes and %q", made, classes.Other)
	}
	for class, times := range made {
		if times != 1 || set.Of(class) != class {
			t.Errorf("class %q was made %d times, and is %q now", class, times, set.Of(class))
		}
	}
}

func TestDefaultLimit(t *testing.T) {
	for _, limit := range []int{0, -1} {
		set := classes.NewSet(strings.Clone, limit, func(class string) string { return class })
		for i := range classes.DefaultLimit {
			if have := set.Of(fmt.Sprint(i)); have != fmt.Sprint(i) {
				t.Fatalf("limit %d: class %d is %q", limit, i, have)
			}
		}
		if have := set.Of("one more"); have != classes.Other {
			t.Errorf("limit %d: one more class is %q, want %q", limit, have, classes.Other)
		}
	}
}

func TestSetDoesNotAllocateForAKnownClass(t *testing.T) {
	set := classes.NewSet(nil, 10, func(class string) string { return class })
	set.Of("order:1")
	if n := testing.AllocsPerRun(100, func() { set.Of("order:4711") }); n != 0 {
		t.Errorf("%v allocations, want none", n)
	}
}

func BenchmarkSet(b *testing.B) {
	set := classes.NewSet(nil, 10, func(class string) string { return class })
	for b.Loop() {
		set.Of("order:4711")
	}
}
