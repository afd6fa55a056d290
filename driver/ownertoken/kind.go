package ownertoken

import (
	"strconv"
	"strings"

	"github.com/dibslock/dibs/driver"
)

// kindLetters lists the kinds in tokens, with their letters.
var kindLetters = [...]struct {
	letter byte
	kind   driver.Kind
}{
	{'m', driver.KindMutex}, {'r', driver.KindReader}, {'w', driver.KindWriter}, {'s', driver.KindSemaphore},
	{'a', driver.KindMulti}, {'e', driver.KindElection}, {'o', driver.KindOnce},
}

// AppendKind appends a lease's kind to its token: a letter, a semaphore's limit, and a hyphen. It
// appends nothing for a kind without a letter.
func AppendKind(token []byte, kind driver.Kind, limit int) []byte {
	for _, k := range kindLetters {
		if k.kind != kind {
			continue
		}
		token = append(token, k.letter)
		if kind == driver.KindSemaphore {
			token = strconv.AppendInt(token, int64(limit), 10)
		}
		return append(token, '-')
	}
	return token
}

func kindOfLetter(letter byte) driver.Kind {
	for _, k := range kindLetters {
		if k.letter == letter {
			return k.kind
		}
	}
	return ""
}

// Kind returns the kind and the limit in a token made by dibs. The limit is the semaphore's limit,
// driver.Unlimited for readers and writers, and 1 for other kinds. Without a kind in the token,
// Kind returns "" and 0.
func Kind(token string) (kind driver.Kind, limit int) {
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
	case kind == driver.KindSemaphore:
		n, err := strconv.ParseInt(number, 10, 32)
		if err != nil || n < 1 {
			return "", 0
		}
		return kind, int(n)
	case number != "":
		return "", 0
	case kind == driver.KindReader, kind == driver.KindWriter:
		return kind, driver.Unlimited
	case kind != "":
		return kind, 1
	}
	return "", 0
}

// NewHolder returns a holder with the kind, limit and label in its token. A zero weight means
// exclusive.
func NewHolder(token string, weight int) driver.Holder {
	kind, limit := Kind(token)
	return driver.Holder{Token: token, Label: Label(token), Kind: resized(kind, weight == 0), Weight: weight, Limit: limit}
}

// NewWaiter returns a waiter that takes weight of limit, with the kind and label in its token.
func NewWaiter(token string, weight, limit int) driver.Waiter {
	kind, _ := Kind(token)
	return driver.Waiter{Token: token, Label: Label(token), Kind: kind, Weight: weight, Limit: limit}
}

// resized returns the current kind of a lease. The lease may have been upgraded or downgraded since
// its token was made.
func resized(kind driver.Kind, exclusive bool) driver.Kind {
	switch {
	case kind == driver.KindReader && exclusive:
		return driver.KindWriter
	case kind == driver.KindWriter && !exclusive:
		return driver.KindReader
	}
	return kind
}
