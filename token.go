package dibs

import (
	"crypto/rand"
	"encoding/base32"
	"encoding/base64"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/driver/ownertoken"
)

// A Token is the owner token of a lease. Whoever has it can act as the owner: unlock the lease, or
// attach to it. So the package fmt, log/slog and encoding/json show its short form only, which is
// host:pid:label, or the quoted beginning of a token that dibs has not made. string(t) is the whole
// token. So are two values that these packages cannot ask for a short form: an unexported field of a
// struct in package fmt, and a key of a map in encoding/json.
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

// LogValue returns the short form, for log/slog.
func (t Token) LogValue() slog.Value { return slog.StringValue(t.String()) }

// MarshalText returns the short form, for encoding/json and the like. No UnmarshalText reads it back.
func (t Token) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

const maxToken = 256 // bytes

// identity returns the part that the tokens of all leases of a Client share:
// host:pid:client. The last part is 96 bits from crypto/rand.
func identity() string {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "unknown"
	}
	var random [12]byte
	rand.Read(random[:]) // never fails: the runtime would crash first
	return cleanHost(host) + ":" + strconv.Itoa(os.Getpid()) + ":" + base64.RawURLEncoding.EncodeToString(random[:])
}

// cleanHost replaces the characters of a host name that would break the token format.
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

// newToken returns the owner token of one acquire: client:kind-random, then :label. The
// random part has 96 bits, so one token does not reveal the others of its process. The
// kind is for those who inspect the lock.
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

// shortToken returns a short form of a token for messages. It does not let the reader act
// as the owner. A token that dibs made becomes host:pid and its label. Any other value
// becomes its quoted beginning.
func shortToken(token string) string {
	parts := strings.SplitN(token, ":", 5)
	if len(parts) >= 4 && isPlain(token, maxToken) && len(parts[2]) >= 16 {
		if _, err := strconv.Atoi(parts[1]); err == nil {
			return strings.Join(append(parts[:2:2], parts[4:]...), ":")
		}
	}
	runes := []rune(token[:min(len(token), 64)])
	if len(runes) == 1 { // any part of it would be the whole
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
