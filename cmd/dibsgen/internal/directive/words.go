package directive

import (
	"strings"
	"unicode"
)

// words contains a comment's text after the names.
type words struct {
	text   string
	offset int // text's offset in the comment
}

// first returns the first word and its place in the comment. A comment contains no words.
func (w words) first() (word string, offset int) {
	text := strings.TrimLeftFunc(w.text, unicode.IsSpace)
	word = firstWord(text)
	if strings.HasPrefix(word, "//") {
		word = ""
	}
	return word, w.offset + len(w.text) - len(text)
}

// skip removes n bytes.
func (w *words) skip(n int) {
	w.text, w.offset = w.text[n:], w.offset+n
}

// skipTo removes words until the first is wanted, or none is left.
func (w *words) skipTo(wanted func(word string) bool) {
	for word, at := w.first(); word != "" && !wanted(word); word, at = w.first() {
		w.skip(at - w.offset + len(word))
	}
}

// each calls yield with each word and its place in the comment.
func (w words) each(yield func(word string, offset int) bool) {
	for {
		word, at := w.first()
		if word == "" || !yield(word, at) {
			return
		}
		w.skip(at - w.offset + len(word))
	}
}

// firstWord returns the text before the first space.
func firstWord(text string) string {
	if end := strings.IndexFunc(text, unicode.IsSpace); end >= 0 {
		return text[:end]
	}
	return text
}
