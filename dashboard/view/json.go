package view

import (
	"encoding/json"
	"fmt"
	"io"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Schema is the JSON output's version. New fields do not change it. Fields are never removed and
// never change their meaning.
const Schema = 3

// WriteLine writes a value as a single line in JSON, in one write.
func WriteLine(w io.Writer, v any) error {
	line, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = w.Write(append(escaped(line), '\n'))
	return err
}

// escaped escapes the runes allowed in JSON that a terminal can interpret. They only occur inside
// strings.
func escaped(line []byte) []byte {
	var out []byte
	for _, r := range string(line) {
		if unicode.IsPrint(r) {
			out = utf8.AppendRune(out, r)
			continue
		}
		for _, unit := range utf16.AppendRune(nil, r) {
			out = fmt.Appendf(out, `\u%04x`, unit)
		}
	}
	return out
}
