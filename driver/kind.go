package driver

import (
	"strconv"
	"strings"
)

// A Kind is the primitive that a lease or a request belongs to. It is empty if it is not
// known: the application has chosen the token, or the lock is a foreign one.
type Kind string

// Kinds of locks.
const (
	KindMutex     Kind = "mutex"
	KindReader    Kind = "reader"
	KindWriter    Kind = "writer"
	KindSemaphore Kind = "semaphore"
	KindMulti     Kind = "multi"
	KindElection  Kind = "election"
	KindOnce      Kind = "once"
	KindAttached  Kind = "attached" // a lease of Client.Attach, whose primitive is unknown
)

// kindLetters has the letter of each kind that a token can have.
var kindLetters = [...]struct {
	letter byte
	kind   Kind
}{
	{'m', KindMutex}, {'r', KindReader}, {'w', KindWriter}, {'s', KindSemaphore},
	{'a', KindMulti}, {'e', KindElection}, {'o', KindOnce},
}

// AppendKind appends the kind of a lease to its token: a letter, for a semaphore its limit,
// and a hyphen. It appends nothing for a kind that no token has.
func AppendKind(token []byte, kind Kind, limit int) []byte {
	for _, k := range kindLetters {
		if k.kind != kind {
			continue
		}
		token = append(token, k.letter)
		if kind == KindSemaphore {
			token = strconv.AppendInt(token, int64(limit), 10)
		}
		return append(token, '-')
	}
	return token
}

func kindOfLetter(letter byte) Kind {
	for _, k := range kindLetters {
		if k.letter == letter {
			return k.kind
		}
	}
	return ""
}

// KindOf returns the kind in a token that dibs made. The limit is that of a semaphore,
// Unlimited for readers and writers, and 1 for the others. Both are zero if the token has
// no kind.
func KindOf(token string) (kind Kind, limit int) {
	parts := strings.SplitN(token, ":", 5)
	if len(parts) < 4 {
		return "", 0
	}
	mark, _, ok := strings.Cut(parts[3], "-")
	if !ok || mark == "" {
		return "", 0
	}
	kind, number := kindOfLetter(mark[0]), mark[1:]
	switch {
	case kind == KindSemaphore:
		n, err := strconv.ParseInt(number, 10, 32)
		if err != nil || n < 1 {
			return "", 0
		}
		return kind, int(n)
	case number != "":
		return "", 0
	case kind == KindReader, kind == KindWriter:
		return kind, Unlimited
	case kind != "":
		return kind, 1
	}
	return "", 0
}

// NewHolder returns a holder of this weight (zero: exclusive), with what its token says.
func NewHolder(token string, weight int) Holder {
	kind, limit := KindOf(token)
	return Holder{Token: token, Label: LabelOf(token), Kind: resized(kind, weight == 0), Weight: weight, Limit: limit}
}

// NewWaiter returns a waiter that takes weight of limit, with what its token says.
func NewWaiter(token string, weight, limit int) Waiter {
	kind, _ := KindOf(token)
	return Waiter{Token: token, Label: LabelOf(token), Kind: kind, Weight: weight, Limit: limit}
}

// resized returns the kind of a lease that may have been upgraded or downgraded since its
// token was made.
func resized(kind Kind, exclusive bool) Kind {
	switch {
	case kind == KindReader && exclusive:
		return KindWriter
	case kind == KindWriter && !exclusive:
		return KindReader
	}
	return kind
}
