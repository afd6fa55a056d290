package dibs

import (
	"crypto/rand"
	"encoding/base32"
	"encoding/base64"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/driver/ownertoken"
)

// A Token is a lease's owner token. Any process with the token can act as the owner: unlock the
// lease, or attach to it. So fmt, log/slog and encoding/json only show its short form:
// host:pid:label, or the quoted beginning of a token not made by dibs. string(t) is the whole
// token.
//
// In two cases the output contains the whole token: fmt prints a Token in an unexported struct
// field, or encoding/json encodes a map with Token keys.
type Token string

// String returns the short form.
func (t Token) String() string {
	if t == "" {
		return ""
	}
	return shortToken(string(t))
}

// GoString returns the short form, for the verb %#v.
func (t Token) GoString() string { return fmt.Sprintf("dibs.Token(%q)", t.String()) }

// Format writes the short form for every verb of package fmt.
func (t Token) Format(s fmt.State, verb rune) { formatShort(s, verb, t) }

// formatShort writes the short form of a secret for every verb: without it, %d prints the whole value.
func formatShort(s fmt.State, verb rune, secret interface {
	fmt.Stringer
	fmt.GoStringer
}) {
	if verb == 'v' && s.Flag('#') {
		_, _ = io.WriteString(s, secret.GoString())
		return
	}
	_, _ = fmt.Fprintf(s, fmt.FormatString(s, verb), secret.String())
}

// LogValue returns the short form, for log/slog.
func (t Token) LogValue() slog.Value { return slog.StringValue(t.String()) }

// MarshalText returns the short form, for encoding/json and similar encoders. No UnmarshalText
// reads it back.
func (t Token) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

const maxToken = 256 // bytes

// identity returns the common part of a Client's tokens: host:pid:client. The last part is 96 bits
// from crypto/rand.
func identity() string {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "unknown"
	}
	var random [12]byte
	rand.Read(random[:]) // never fails: the runtime would crash first
	return cleanHost(host) + ":" + strconv.Itoa(os.Getpid()) + ":" + base64.RawURLEncoding.EncodeToString(random[:])
}

// cleanHost replaces characters in a host name that would break the token format.
func cleanHost(host string) string {
	const limit = 64
	host = strings.Map(func(r rune) rune {
		if r <= ' ' || r == ':' || r > '~' {
			return '_'
		}
		return r
	}, host)
	return host[:min(len(host), limit)]
}

// newToken returns an acquire's owner token: client:kind-random, then :label. The random part has
// 96 bits, so a token does not reveal its process's other tokens. The kind is shown when the lock
// is inspected. It is in the token because Redis needs 1.3 of about 10 µs more to write metadata.
func newToken(client string, w lockSpec, label string) string {
	var random [12]byte
	rand.Read(random[:])
	var buf [192]byte
	b := append(buf[:0], client...)
	b = ownertoken.AppendKind(append(b, ':'), driver.Kind(w.kind), w.limit)
	b = lettersAndDigits.AppendEncode(b, random[:])
	if label != "" {
		b = append(b, ':')
		b = append(b, label...)
	}
	return string(b)
}

// lettersAndDigits encodes 5 bits per character, without padding.
var lettersAndDigits = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// shortToken returns a token's short form for messages, with which nobody can act as the owner. A
// token made by dibs becomes host:pid and its label. Any other value becomes its quoted beginning.
func shortToken(token string) string {
	parts := strings.SplitN(token, ":", 5)
	if len(parts) >= 4 && isPlain(token, maxToken) && len(parts[2]) >= 16 {
		if _, err := strconv.Atoi(parts[1]); err == nil {
			return strings.Join(append(parts[:2:2], parts[4:]...), ":")
		}
	}
	runes := []rune(token[:min(len(token), 64)])
	if len(runes) == 1 { // any part would be the whole
		return "a value with a single character"
	}
	return fmt.Sprintf("%q…", string(runes[:min(len(runes)/2, 8)]))
}

// isPlain reports whether s is at most limit bytes of printable UTF-8 without spaces.
func isPlain(s string, limit int) bool {
	if len(s) > limit || !utf8.ValidString(s) {
		return false
	}
	for _, r := range s {
		if unicode.IsSpace(r) || !unicode.IsPrint(r) {
			return false
		}
	}
	return true
}
