package dashboard

import (
	"bytes"
	"encoding/json"
	"strings"
)

// A delta says how to make a text from an older text: numbers and new text in turn. Each step is
// how much old text to skip, which can be negative, how much to copy, and the text to append to it.
// Lengths are in UTF-16 units, as in JavaScript.
type delta struct {
	steps  []any
	at     int // in the old text, after the last copy
	copied step
	added  strings.Builder
}

// A step copies a part of the old text.
type step struct{ start, length int }

// copy appends a part of the old text.
func (d *delta) copy(start, length int) {
	if length == 0 {
		return
	}
	if d.added.Len() == 0 && start == d.copied.start+d.copied.length {
		d.copied.length += length
		return
	}
	d.flush()
	d.copied = step{start, length}
}

// flush ends the current step.
func (d *delta) flush() {
	if d.copied.length > 0 || d.added.Len() > 0 {
		d.steps = append(d.steps, d.copied.start-d.at, d.copied.length, d.added.String())
		d.at = d.copied.start + d.copied.length
	}
	d.copied = step{start: d.at}
	d.added.Reset()
}

// A line is a line in a fragment. Most are table rows.
type line struct {
	text  string
	key   string // the same for the same name's line in another fragment
	start int    // in the fragment
}

func linesOf(text string) (all []line) {
	at := 0
	for one := range strings.Lines(text) {
		all = append(all, line{text: one, key: keyOf(one), start: at})
		at += units(one)
	}
	return all
}

// eventMark is an attribute for lines that never change, and move down when others come.
const eventMark = "data-event"

// keyOf returns the first link in a line, or its first characters. An event's key is the whole
// line.
func keyOf(text string) string {
	if strings.HasPrefix(text, "<tr "+eventMark) {
		return text
	}
	const href, most = `href="`, 20
	if _, rest, found := strings.Cut(text, href); found {
		link, _, _ := strings.Cut(rest, `"`)
		return href + link
	}
	return text[:min(len(text), most)]
}

// units returns a text's length in UTF-16 units.
func units(text string) (n int) {
	for _, r := range text {
		if n++; r > 0xffff {
			n++
		}
	}
	return n
}

// deltaOf returns how to make a text from an older text, as JSON on a single line.
func deltaOf(old, now string) ([]byte, error) {
	before := make(map[string][]line)
	for _, one := range linesOf(old) {
		before[one.key] = append(before[one.key], one)
	}
	d := &delta{}
	for one := range strings.Lines(now) {
		key := keyOf(one)
		same := before[key]
		if len(same) == 0 {
			d.added.WriteString(one)
			continue
		}
		before[key] = same[1:]
		d.change(same[0], one)
	}
	d.flush()
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	err := e.Encode(d.steps)
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), err
}

// change makes a line from an older line.
func (d *delta) change(old line, now string) {
	from, to := pieces(old.text), pieces(now)
	at, same := old.start, len(from) == len(to)
	for i, piece := range to {
		length := 0
		if i < len(from) {
			length = units(from[i])
		}
		switch {
		case i < len(from) && from[i] == piece:
			d.copy(at, length)
		case same:
			d.added.WriteString(piece)
		default: // the lines have different pieces from here on, so the rest is sent
			d.added.WriteString(strings.Join(to[i:], ""))
			return
		}
		at += length
	}
}

// pieces divides a line before each tag and after it.
func pieces(text string) (all []string) {
	begin := 0
	for i := range len(text) {
		switch {
		case text[i] == '<' && i > begin:
			all = append(all, text[begin:i])
			begin = i
		case text[i] == '>':
			all = append(all, text[begin:i+1])
			begin = i + 1
		}
	}
	if begin < len(text) {
		all = append(all, text[begin:])
	}
	return all
}
