package foreign

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A textForm is the form of a string.
type textForm int

const (
	formData   textForm = iota // no owner token
	formNumber                 // a counter, a semaphore, a time
	formPlain                  // a short text, as somebody may choose as a token
	formRandom                 // such as libraries make as tokens
)

const counterKind = "counter"

// maxToken is the longest value that is taken for an owner token, in bytes.
const maxToken = 256

var (
	number   = lazily(`^[+-]?[0-9]+(\.[0-9]+)?$`)
	uuid     = lazily(`^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$`)
	hex      = lazily(`^[0-9a-fA-F]{16,64}$`)
	random   = lazily(`^[A-Za-z0-9+/_-]{16,64}={0,2}$`)
	shedLock = lazily(`^ADDED:\d{4}-\d\d-\d\dT[0-9:.]+Z@[^\s]+$`)
	quoted   = lazily(`^s:(\d+):"(.*)";$`)            // a string, as PHP stores it
	document = lazily(`^\s*([{<]|\[|[aOCi]:\d+[:;])`) // JSON, XML, a PHP array, object or number
)

// describeString describes a string that is not of dibs: see IsDibs.
func describeString(v Value) Description {
	if len(v.Items) != 1 || !v.complete() || v.Size > maxToken {
		return data(v)
	}
	text := v.Items[0].Name
	kind, form := formOf(text)
	d := Description{Kind: kind}
	switch {
	case form == formData, form == formNumber:
		return d
	case v.TTL < 0 && v.Bare && form == formPlain: // a setting, a name, any text
		d.Kind = "string"
		return d
	}
	d.Lock, d.Unique, d.Holders, d.Holding = true, form == formRandom, exclusive(text, ownerIn(text), v), 1
	return d
}

// formOf returns what a text looks like, and its form.
func formOf(text string) (kind string, form textForm) {
	if inner, encoding, ok := unpack(text); ok {
		return formOfPacked(inner, encoding)
	}
	switch {
	case number().MatchString(text):
		return counterKind, formNumber
	case shedLock().MatchString(text):
		return "ShedLock", formRandom
	case uuid().MatchString(text):
		return "lock (UUID)", formRandom
	case hex().MatchString(text), random().MatchString(text) && mixed(text):
		return "lock (random text)", formRandom
	case document().MatchString(text):
		return "string", formData
	case !utf8.ValidString(text) || hasControls(text):
		return formOfBytes(text)
	}
	return "lock (text)", formPlain
}

// mixed reports whether a text has digits and letters, as random text of this length has
// and words seldom have.
func mixed(text string) bool {
	return strings.ContainsAny(text, "0123456789") && strings.ContainsFunc(text, unicode.IsLetter)
}

func hasControls(text string) bool { return strings.ContainsFunc(text, unicode.IsControl) }

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

// formOfPacked returns the form of a text that is stored in another form.
func formOfPacked(inner, encoding string) (kind string, form textForm) {
	if _, form := formOf(inner); form == formRandom || form == formPlain {
		return "lock (" + encoding + " string)", formRandom
	}
	return "string", formData
}

// formOfBytes returns the form of a value that is not text.
func formOfBytes(text string) (kind string, form textForm) {
	const rslock = 20 // random bytes
	if len(text) == rslock && !utf8.ValidString(text) {
		return "lock (20 bytes)", formRandom
	}
	return "string", formData
}

// unpack returns the text that is stored in another form: Java's, the default of Spring;
// or one of PHP's Redis clients, which Laravel uses.
func unpack(text string) (inner, encoding string, ok bool) {
	if parts := quoted().FindStringSubmatch(text); len(parts) == 3 && parts[1] == strconv.Itoa(len(parts[2])) {
		return parts[2], "PHP", true
	}
	for _, p := range []struct {
		name, head string
		digits     int // bytes of the length that follows the head
	}{
		{"Java", "\xac\xed\x00\x05t", 2},
		{"igbinary", "\x00\x00\x00\x02\x11", 1},
		{"MessagePack", "\xd9", 1},
	} {
		rest, found := strings.CutPrefix(text, p.head)
		if !found || len(rest) < p.digits {
			continue
		}
		size := 0
		for _, b := range []byte(rest[:p.digits]) {
			size = size<<8 | int(b)
		}
		if len(rest) == p.digits+size {
			return rest[p.digits:], p.name, true
		}
	}
	const fixed, sizeBits = 0xa0, 0x1f // a MessagePack string of up to 31 bytes
	if len(text) > 1 && text[0]&^sizeBits == fixed && int(text[0]&sizeBits) == len(text)-1 {
		return text[1:], "MessagePack", true
	}
	return "", "", false
}

// IsDibs reports whether a string was written by dibs: the mark of shared holders, or a
// token of the form that dibs makes, also of a reserved name. A token that an application
// has chosen is not recognised.
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
	const client = 16 // characters, at least
	return HasTokenForm(token) && len(token) <= maxToken && len(strings.Split(token, ":")[2]) >= client
}

// HasTokenForm reports whether a token is host:pid:client:lease, with a label or without.
// The scripts of a store test the same.
func HasTokenForm(token string) bool {
	parts := strings.SplitN(token, ":", 5)
	if len(parts) < 4 || parts[0] == "" || parts[2] == "" || parts[3] == "" {
		return false
	}
	pid, err := strconv.Atoi(parts[1])
	return err == nil && pid > 0
}
