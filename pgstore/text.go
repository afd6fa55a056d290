package pgstore

import (
	"encoding/hex"
	"strings"
)

// Names, tokens and reasons are stored as ASCII. So their text is the same in every database and
// connection encoding. Otherwise two clients with different encodings could hold the same name at
// the same time. ASCII texts, and so most names, can be read in the tables.

const escape = '\\' // then two hexadecimal digits

func mustEscape(b byte) bool { return b == 0 || b == escape || b >= 0x80 }

// toText returns a text with all bytes escaped that are not ASCII, or not allowed in PostgreSQL.
func toText(s string) string {
	n := 0
	for i := range len(s) {
		if mustEscape(s[i]) {
			n++
		}
	}
	if n == 0 {
		return s
	}
	text := make([]byte, 0, len(s)+2*n)
	for i := range len(s) {
		if mustEscape(s[i]) {
			text = append(text, escape)
			text = hex.AppendEncode(text, []byte{s[i]})
		} else {
			text = append(text, s[i])
		}
	}
	return string(text)
}

// fromText undoes toText.
func fromText(text string) string {
	if strings.IndexByte(text, escape) < 0 {
		return text
	}
	s := make([]byte, 0, len(text))
	for i := 0; i < len(text); i++ {
		if text[i] == escape && i+2 < len(text) {
			if b, err := hex.DecodeString(text[i+1 : i+3]); err == nil {
				s = append(s, b...)
				i += 2
				continue
			}
		}
		s = append(s, text[i])
	}
	return string(s)
}

func toTexts(names []string) []string {
	texts := make([]string, len(names))
	for i, name := range names {
		texts[i] = toText(name)
	}
	return texts
}
