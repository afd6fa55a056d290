// Package classes groups lock names into classes, so that a metric has few series: order:1 and
// order:2 are in the class order:*.
package classes

import (
	"iter"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"unicode/utf8"
)

// Other is the class for all names without room in a Set.
const Other = "other"

// DefaultLimit is a Set's default number of classes.
const DefaultLimit = 200

const (
	maxLength = 64 // a class's longest length, in bytes
	longWord  = 8  // from this length on, a word with a digit is an id
	uuidSize  = 36
)

// Of returns a name's class. It replaces likely ids by *: each number, each UUID, and each word
// with at least 8 letters and digits, if it contains a digit. A class is valid UTF-8, at most 64
// bytes long.
func Of(name string) string {
	var space [maxLength]byte
	return string(appendClass(space[:0], name))
}

// appendClass appends a name's class to an empty slice.
func appendClass(class []byte, name string) []byte {
	for len(name) > 0 && len(class) < maxLength {
		if isUUID(name) {
			class, name = appendStar(class), name[uuidSize:]
			continue
		}
		n, digit := word(name)
		switch {
		case n == 0:
			class, name = appendRune(class, name)
			continue
		case !digit:
			class = append(class, name[:min(n, maxLength-len(class))]...)
		case n >= longWord:
			class = appendStar(class)
		default:
			class = appendWithoutNumbers(class, name[:n])
		}
		name = name[n:]
	}
	return class
}

// appendRune moves a single character that does not belong to a word.
func appendRune(class []byte, name string) (longer []byte, rest string) {
	r, n := utf8.DecodeRuneInString(name)
	if len(class)+utf8.RuneLen(r) > maxLength {
		return class, ""
	}
	return utf8.AppendRune(class, r), name[n:]
}

func appendWithoutNumbers(class []byte, word string) []byte {
	for i := range len(word) {
		if isDigit(word[i]) {
			class = appendStar(class)
		} else if len(class) < maxLength {
			class = append(class, word[i])
		}
	}
	return class
}

// appendStar appends a single star for adjacent ids.
func appendStar(class []byte) []byte {
	if len(class) == maxLength || len(class) > 0 && class[len(class)-1] == '*' {
		return class
	}
	return append(class, '*')
}

// word returns the length of the word at the start of name, and whether it contains a digit.
func word(name string) (n int, digit bool) {
	for n < len(name) && (isDigit(name[n]) || isLetter(name[n])) {
		digit = digit || isDigit(name[n])
		n++
	}
	return n, digit
}

// isUUID reports whether name begins with a UUID.
func isUUID(name string) bool {
	if len(name) < uuidSize || name[8] != '-' {
		return false
	}
	for i := range uuidSize {
		switch i {
		case 8, 13, 18, 23:
			if name[i] != '-' {
				return false
			}
		default:
			if !strings.ContainsRune("0123456789abcdefABCDEF", rune(name[i])) {
				return false
			}
		}
	}
	return true
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func isLetter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }

// A Set contains a value for each class, such as its series in a metric. It is safe for concurrent
// use.
type Set[T any] struct {
	class func(name string) string // nil: Of
	limit int
	value func(class string) T

	values atomic.Pointer[map[string]T] // replaced, never changed
	mu     sync.Mutex                   // held while values is replaced
}

// NewSet returns a Set with at most limit classes, and Other in addition. A limit of zero or less
// means DefaultLimit. It calls value once for each class. class returns a name's class; nil means
// Of. Its results are cut to 64 bytes of valid UTF-8. It can be called concurrently.
func NewSet[T any](class func(name string) string, limit int, value func(class string) T) *Set[T] {
	if limit <= 0 {
		limit = DefaultLimit
	}
	s := &Set[T]{class: class, limit: limit, value: value}
	s.values.Store(&map[string]T{Other: value(Other)})
	return s
}

// All returns the values for all classes found in names until now, and for Other.
func (s *Set[T]) All() iter.Seq2[string, T] { return maps.All(*s.values.Load()) }

// Of returns the value for a name's class, or Other's value if the Set is full.
func (s *Set[T]) Of(name string) T {
	var space [maxLength]byte
	class := s.appendClass(space[:0], name)
	values := *s.values.Load()
	if v, found := values[string(class)]; found { // without an allocation
		return v
	}
	if s.full(values) {
		return values[Other]
	}
	return s.add(string(class))
}

func (s *Set[T]) appendClass(class []byte, name string) []byte {
	if s.class == nil {
		return appendClass(class, name)
	}
	return append(class, clean(s.class(name))...)
}

func (s *Set[T]) full(values map[string]T) bool { return len(values) > s.limit }

func (s *Set[T]) add(class string) T {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := *s.values.Load()
	if v, found := old[class]; found {
		return v
	}
	if s.full(old) {
		return old[Other]
	}
	values := maps.Clone(old)
	v := s.value(class)
	values[class] = v
	s.values.Store(&values)
	return v
}

// clean returns a class as valid UTF-8, at most 64 bytes long.
func clean(class string) string {
	class = strings.ToValidUTF8(class, "\uFFFD")
	if len(class) <= maxLength {
		return class
	}
	n := maxLength
	for !utf8.RuneStart(class[n]) {
		n--
	}
	return class[:n]
}
