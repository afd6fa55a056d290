package checkup

import (
	"regexp"
	"strings"
	"sync"
)

// textOrComment matches a quoted text, a comment to the end of the line, or a comment in a block.
var textOrComment = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?s)'[^']*'|"[^"]*"|` + "`[^`]*`" + `|--(?:[ \t\r][^\n]*)?(?:\n|$)|/\*.*?\*/`)
})

// sameCode reports whether two SQL texts differ only in comments and spaces. A tool can remove
// comments, as MariaDB's client does. Comments executed by a server count as code.
func sameCode(a, b string) bool { return a == b || codeOf(a) == codeOf(b) }

func codeOf(text string) string {
	text = textOrComment().ReplaceAllStringFunc(text, func(found string) string {
		comment := strings.HasPrefix(found, "--") || strings.HasPrefix(found, "/*")
		for _, executed := range []string{"/*!", "/*M!", "/*+"} {
			comment = comment && !strings.HasPrefix(found, executed)
		}
		if comment {
			return " "
		}
		return found
	})
	return strings.Join(strings.Fields(text), " ")
}
