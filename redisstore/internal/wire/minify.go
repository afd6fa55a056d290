package wire

import (
	"cmp"
	"slices"
	"strings"
	"sync"
)

// A server that does not know a script receives the whole text, which takes seconds on a narrow
// link. So minified removes comments, indentation and optional spaces, and shortens local names. A
// name gets the same short form in all scripts, which preserves its scopes.

// minified returns a part of a script with the same meaning in fewer bytes. It ends with a line
// feed, so that another part can follow.
func minified(text string) string { return rewritten(luaTokens(text), scriptNames()) }

// scriptNames are the short forms of all local names in the scripts.
var scriptNames = sync.OnceValue(func() map[string]string {
	files, err := lua.ReadDir("lua")
	if err != nil {
		panic(err) // it is embedded
	}
	var tokens []string
	for _, file := range files {
		tokens = append(tokens, luaTokens(readScript(strings.TrimSuffix(file.Name(), ".lua")))...)
	}
	return shortNames(tokens)
})

// rewritten writes tokens with their short names. Table fields and globals are unchanged.
func rewritten(tokens []string, names map[string]string) string {
	if len(tokens) == 0 {
		return ""
	}
	var b strings.Builder
	last := ""
	for i, token := range tokens {
		if short, ok := names[token]; ok && !isField(tokens, i) {
			token = short
		}
		if last != "" && needsSpace(last, token) {
			b.WriteByte(' ')
		}
		b.WriteString(token)
		last = token
	}
	b.WriteByte('\n')
	return b.String()
}

// luaTokens returns a script's words, strings and operators, without comments. The scripts contain
// neither long strings nor long comments.
func luaTokens(text string) []string {
	tokens := make([]string, 0, len(text)/3)
	for i := 0; i < len(text); {
		var length int
		switch c := text[i]; {
		case c == ' ' || c == '\n':
			i++
			continue
		case strings.HasPrefix(text[i:], "--"):
			i += lineLength(text[i:])
			continue
		case c == '\'' || c == '"':
			length = stringLength(text[i:])
		case isWordByte(c):
			length = wordLength(text[i:])
		default:
			length = operatorLength(text[i:])
		}
		tokens = append(tokens, text[i:i+length])
		i += length
	}
	return tokens
}

func lineLength(text string) int {
	if end := strings.IndexByte(text, '\n'); end >= 0 {
		return end
	}
	return len(text)
}

func stringLength(text string) int {
	for i := 1; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case text[0]:
			return i + 1
		}
	}
	panic("a string of a script has no end: " + text)
}

// wordLength returns the length of a name or a number, including its decimal point.
func wordLength(text string) int {
	i := 0
	for i < len(text) && (isWordByte(text[i]) || isDigit(text[0]) && text[i] == '.' && text[i+1] != '.') {
		i++
	}
	return i
}

func operatorLength(text string) int {
	switch {
	case strings.HasPrefix(text, "..."):
		return 3
	case strings.HasPrefix(text, ".."), len(text) > 1 && text[1] == '=':
		return 2
	}
	return 1
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

func isWordByte(c byte) bool {
	return c == '_' || isDigit(c) || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

func isName(token string) bool {
	return isWordByte(token[0]) && !isDigit(token[0]) && !luaKeywords[token]
}

// needsSpace reports whether two adjacent tokens would merge without a space. A number before ".."
// would gain a point.
func needsSpace(last, next string) bool {
	switch a, b := last[len(last)-1], next[0]; {
	case last[0] == '\'' || last[0] == '"':
		return false
	case isWordByte(a):
		return isWordByte(b) || b == '.' && isDigit(last[0])
	default:
		return a == '-' && b == '-'
	}
}

// isField reports whether a token is a field name: after a dot, or before = in a table.
func isField(tokens []string, i int) bool {
	if i == 0 {
		return false
	}
	switch tokens[i-1] {
	case ".":
		return true
	case "{", ",":
		return i+1 < len(tokens) && tokens[i+1] == "=" && inTable(tokens[:i])
	}
	return false
}

// inTable reports whether the innermost open bracket after some tokens belongs to a table. A list
// of variables before = is in no table.
func inTable(tokens []string) bool {
	for open, i := 0, len(tokens)-1; i >= 0; i-- {
		switch tokens[i] {
		case "}", ")", "]":
			open++
		case "{", "(", "[":
			if open == 0 {
				return tokens[i] == "{"
			}
			open--
		case "end", "local", "then", "do", "else":
			return false // no statement in a script is inside a table
		}
	}
	return false
}

// shortNames returns a short form for each local name: the shortest for the most frequent.
func shortNames(tokens []string) map[string]string {
	count := make(map[string]int)
	for i, token := range tokens {
		if token == "local" || token == "for" || token == "function" {
			for _, name := range declared(tokens[i+1:], token) {
				count[name] = 0
			}
		}
	}
	for i, token := range tokens {
		if _, local := count[token]; local && !isField(tokens, i) {
			count[token]++
		}
	}
	locals := make([]string, 0, len(count))
	for name := range count {
		locals = append(locals, name)
	}
	slices.SortFunc(locals, func(a, b string) int {
		return cmp.Or(count[b]-count[a], strings.Compare(a, b))
	})
	short := make(map[string]string, len(locals))
	n := 0
	for _, name := range locals {
		if luaGlobals[name] {
			continue // a global elsewhere in the script
		}
		next := shortName(n)
		for luaKeywords[next] {
			n++
			next = shortName(n)
		}
		short[name] = next
		n++
	}
	return short
}

// declared returns the names declared by local, for or function.
func declared(tokens []string, by string) (names []string) {
	if by == "local" && tokens[0] == "function" {
		return tokens[1:2] // its parameters follow its own keyword
	}
	if by == "function" {
		for tokens[0] != "(" {
			tokens = tokens[1:]
		}
		tokens = tokens[1:]
	}
	for ; isName(tokens[0]); tokens = tokens[2:] {
		names = append(names, tokens[0])
		if tokens[1] != "," {
			break
		}
	}
	return names
}

// shortName returns the n-th name, with one or two letters.
func shortName(n int) string {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	if n < len(letters) {
		return letters[n : n+1]
	}
	n -= len(letters)
	return string([]byte{letters[n/len(letters)], letters[n%len(letters)]})
}

func set(words ...string) map[string]bool {
	all := make(map[string]bool)
	for _, word := range words {
		all[word] = true
	}
	return all
}

var luaKeywords = set("and", "break", "do", "else", "elseif", "end", "false", "for", "function",
	"if", "in", "local", "nil", "not", "or", "repeat", "return", "then", "true", "until", "while")

// luaGlobals are the globals that the scripts use.
var luaGlobals = set("ARGV", "KEYS", "cjson", "error", "ipairs", "math", "pcall", "redis", "string", "table", "tonumber", "type", "unpack")
