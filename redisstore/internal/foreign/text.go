package foreign

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxToken is the maximum length of an owner token, in bytes.
const maxToken = 256

// rslockToken is the length of rslock's tokens, which are random bytes.
const rslockToken = 20

// StringKind is the Kind for a string lock. Many libraries write such locks.
const StringKind = "lock (string)"

var (
	number   = lazily(`^[+-]?[0-9]+(\.[0-9]+)?$`)
	document = lazily(`^\s*([{<\[]|[aisOC]:\d+[:;])`) // JSON, XML, or a serialised PHP value
	random   = lazily(`^[A-Za-z0-9+/_-]{16,64}={0,2}$`)
	shedLock = lazily(`^ADDED:\d{4}-\d\d-\d\dT[0-9:.]+Z@[^\s]+$`)
)

// describeString describes a string that was not written by dibs: see IsDibs. A setting, a name or
// any other text without a TTL is data, unless a prefix marks the key as a lock.
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

// isRandom reports whether a value looks like a library's random token. Random text contains digits
// and letters; words of this length seldom contain both.
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

// ownerIn returns the time and the host from a ShedLock value, without the UUID. It returns "" for
// another value, which may be its owner's secret.
func ownerIn(text string) string {
	if !shedLock().MatchString(text) {
		return ""
	}
	owner := strings.TrimPrefix(text, "ADDED:")
	at := strings.LastIndex(owner, "@")
	host, _, _ := strings.Cut(owner[at+1:], ":")
	return owner[:at+1] + host
}

// IsDibs reports whether a string was written by dibs: the mark for shared holders, or a token in
// dibs' form, also for a reserved name. The token must not include its fence. A token chosen by an
// application is not recognised.
func IsDibs(value string) bool {
	sum, shared := strings.CutPrefix(value, "dibs:shared ")
	if shared {
		_, err := strconv.ParseUint(sum, 10, 64)
		return err == nil
	}
	return isDibsToken(strings.TrimSuffix(value, " reserved"))
}

// isDibsToken reports whether dibs made a token. It contains a random client, which other programs'
// tokens seldom do.
func isDibsToken(token string) bool {
	const random = 16 // characters, at least
	client := ClientOf(token)
	return len(token) <= maxToken && len(client)-strings.LastIndexByte(client, ':') > random
}
