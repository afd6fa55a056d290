package view

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// Safe returns a text that is safe to print on a terminal. Anybody with the right to lock a name
// can choose it, so it must not contain control sequences. A text with unprintable characters is
// returned as a quoted string.
func Safe(text string) string {
	for _, r := range text {
		if !unicode.IsPrint(r) || r == unicode.ReplacementChar {
			return strconv.QuoteToGraphic(text)
		}
	}
	return text
}

// Brief formats a duration for people, with two units at most. A negative duration is "never".
func Brief(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d < 0:
		return "never"
	case d < time.Second:
		return fmt.Sprintf("%dms", d.Milliseconds())
	case d < 10*time.Second:
		return fmt.Sprintf("%.1fs", d.Truncate(100*time.Millisecond).Seconds())
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", d/time.Minute, d%time.Minute/time.Second)
	case d < day:
		return fmt.Sprintf("%dh%02dm", d/time.Hour, d%time.Hour/time.Minute)
	}
	return fmt.Sprintf("%dd%02dh", d/day, d%day/time.Hour)
}

// orDash returns a text, or "-" if it is empty.
func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

// number returns a number, or "-" if it is zero.
func number(n uint64) string {
	if n == 0 {
		return "-"
	}
	return strconv.FormatUint(n, 10)
}

// Plural returns a number with its noun.
func Plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + many
}

// Quoted returns names for people, each in quotes.
func Quoted(names []string) string {
	var q []string
	for _, name := range names {
		q = append(q, strconv.Quote(name))
	}
	return strings.Join(q, ", ")
}

// ErrorText returns an error's text without the prefix "dibs: " in each part.
func ErrorText(err error) string {
	if err == nil {
		return ""
	}
	text := strings.TrimPrefix(err.Error(), "dibs: ")
	return strings.NewReplacer(": dibs: ", ": ", "\ndibs: ", "\n").Replace(text)
}

// Cut returns the beginning of a text that fits into width cells.
func Cut(text string, width int) string { return prefix(text, max(width, 0)) }
