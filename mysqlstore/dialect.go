package mysqlstore

import (
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"
)

// A dialect is the sqlstore.Dialect for MariaDB and MySQL. Names are in hexadecimal, and so never
// converted between character sets.
type dialect struct{}

func (dialect) Name(name string) any      { return listOf(name) }
func (dialect) Names(names []string) any  { return listOf(names...) }
func (dialect) Text(text string) any      { return []byte(text) }
func (dialect) Key(text string) any       { return hexOf(text) }
func (dialect) Decode(text string) string { return text }
func (dialect) Repeatable(err error) bool { return repeatable(err) }

func (dialect) Unavailable(op, name string, err error) error { return unavailable(op, name, err) }

func (dialect) Pair(name, token string) []any {
	n, whose := hexOf(name), hexOf(token)
	return []any{n, whose, n, whose}
}

func (dialect) Ordered(names []string) any {
	list := make([][]any, len(names))
	for i, name := range names {
		list[i] = []any{i + 1, hexOf(name)}
	}
	return listText(list)
}

// listText returns rows as list_of reads them.
func listText(rows [][]any) string {
	text, err := json.Marshal(rows)
	if err != nil {
		panic(err) // numbers and hexadecimal texts can be encoded
	}
	return string(text)
}

// listOf returns names as the procedures read them: in order, each with a comma after it.
func listOf(names ...string) string {
	var b strings.Builder
	for _, name := range slices.Sorted(slices.Values(names)) {
		b.WriteString(hex.EncodeToString([]byte(name)))
		b.WriteByte(',')
	}
	return b.String()
}

func hexOf(name string) string { return hex.EncodeToString([]byte(name)) }
