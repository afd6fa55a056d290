package foreign

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxToken is the longest value that is taken for an owner token, in bytes.
const maxToken = 256

// rslockToken is the length of a token of rslock, which is random bytes.
const rslockToken = 20

// StringKind is the Kind of a lock that is a string. Many libraries write such locks.
const StringKind = "lock (string)"

var (
	number   = lazily(`^[+-]?[0-9]+(\.[0-9]+)?$`)
	document = lazily(`^\s*([{<\[]|[aisOC]:\d+[:;])`) // JSON, XML, or a value of PHP
	random   = lazily(`^[A-Za-z0-9+/_-]{16,64}={0,2}$`)
	shedLock = lazily(`^ADDED:\d{4}-\d\d-\d\dT[0-9:.]+Z@[^\s]+$`)
)

// describeString describes a string that is not of dibs: see IsDibs. A setting, a name and
// any other text without a TTL are data, unless a prefix says that the key is a lock.
func describeString(v Value) Description {
	if len(v.Items) != 1 || !v.complete() || v.Size > maxToken {
		return data(v)
	}
	text := v.Items[0].Name
	unique := isRandom(text)
	if !unique && !isText(text) || !unique && v.TTL < 0 && v.Bare {
		return data(v)
	}
	d := Description{Kind: StringKind, Lock: true, Unique: unique, Holders: exclusive(text, ownerIn(text), v), Holding: 1}
	if shedLock().MatchString(text) {
		d.Kind = "ShedLock"
	}
	return d
}

// isRandom reports whether a value is such as libraries make for each lock. Random text has
// digits and letters, and words of this length seldom have both.
func isRandom(text string) bool {
	switch {
	case number().MatchString(text):
		return false
	case shedLock().MatchString(text):
		return true
	case random().MatchString(text):
		return strings.ContainsAny(text, "0123456789") && strings.ContainsFunc(text, unicode.IsLetter)
	}
	return len(text) == rslockToken && !utf8.ValidString(text)
}

// isText reports whether a value is a short text, as somebody may choose as a token. A number
// and a document are data.
func isText(text string) bool {
	return !number().MatchString(text) && !document().MatchString(text) &&
		utf8.ValidString(text) && !strings.ContainsFunc(text, unicode.IsControl)
}

// ownerIn returns the time and the host in a value of ShedLock, without the UUID, or "" for
// another value: the whole of it may be the secret of its owner.
func ownerIn(text string) string {
	if !shedLock().MatchString(text) {
		return ""
	}
	owner := strings.TrimPrefix(text, "ADDED:")
	at := strings.LastIndex(owner, "@")
	host, _, _ := strings.Cut(owner[at+1:], ":")
	return owner[:at+1] + host
}

// IsDibs reports whether a string was written by dibs: the mark of shared holders, or a
// token of the form that dibs makes, also of a reserved name. The token is without its fence. A
// token that an application has chosen is not recognised.
func IsDibs(value string) bool {
	sum, shared := strings.CutPrefix(value, "dibs:shared ")
	if shared {
		_, err := strconv.ParseUint(sum, 10, 64)
		return err == nil
	}
	return isDibsToken(strings.TrimSuffix(value, " reserved"))
}

// isDibsToken reports whether a token is one that dibs makes. It has a client of random
// text, which the tokens of other programs seldom have.
func isDibsToken(token string) bool {
	const random = 16 // characters, at least
	client := ClientOf(token)
	return len(token) <= maxToken && len(client)-strings.LastIndexByte(client, ':') > random
}
