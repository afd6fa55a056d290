package dibs

import (
	"crypto/rand"
	"encoding/base64"
	"os"
	"strconv"
	"strings"
)

// identity is the part of a token that all leases of a Client share:
// host:pid:random, the random part 96 bits from crypto/rand.
func identity() string {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "unknown"
	}
	var random [12]byte
	rand.Read(random[:]) // never fails: the runtime would crash first
	return clean(host) + ":" + strconv.Itoa(os.Getpid()) + ":" + base64.RawURLEncoding.EncodeToString(random[:])
}

// clean keeps a host name from breaking the token's form.
func clean(host string) string {
	const limit = 64
	host = strings.Map(func(r rune) rune {
		if r <= ' ' || r == ':' || r > '~' {
			return '_'
		}
		return r
	}, host)
	return host[:min(len(host), limit)]
}

// token names the seq-th acquisition of a client: client:seq, then :label.
func token(client string, seq uint64, label string) string {
	var buf [192]byte
	b := append(buf[:0], client...)
	b = append(b, ':')
	b = strconv.AppendUint(b, seq, 36)
	if label != "" {
		b = append(b, ':')
		b = append(b, label...)
	}
	return string(b)
}

// LabelOf returns the label in a token that dibs made, or "".
func LabelOf(token string) string {
	parts := strings.SplitN(strings.TrimSuffix(token, Kept), ":", 5)
	if len(parts) < 5 {
		return ""
	}
	return parts[4]
}
