package dibs

import (
	"cmp"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"

	"github.com/dibslock/dibs/driver"
	leasestate "github.com/dibslock/dibs/internal/lease"
)

// A Handle identifies a lease, so another process or call can use it with Client.Attach. It
// contains the lease's names, owner token and fences.
//
// A Handle contains the token, so the application should keep it secret. String, GoString and
// LogValue return a short form without the token. MarshalText and UnmarshalText, and so
// encoding/json, use the complete form.
type Handle struct {
	token string
	names []leasestate.Named // with each name's fence, or zero; none in the zero Handle
}

// Handle returns the lease's handle. A shared lease's handle contains no fence, because fences of
// shared leases must not be compared. A nil or zero Lease returns the zero Handle.
func (handle *Lease) Handle() Handle {
	if handle.isZero() {
		return Handle{}
	}
	l := handle.lease()
	s := l.LockState()
	defer l.UnlockState()
	h := Handle{token: s.Token, names: s.Names()}
	if held := s.Weight(); held.Weight != held.Limit && !held.Unsure {
		for i := range h.names {
			h.names[i].Fence = 0
		}
	}
	return h
}

// NewHandle returns the handle for a lease on a name whose token the application chose: see
// OwnerToken. It contains no fence, so a lease attached with it has fence zero. If the fence is
// needed, the owner should pass on Lease.Handle instead. Attach returns ErrInvalid for an invalid
// name or token.
func NewHandle(name, token string) Handle {
	return Handle{token: token, names: []leasestate.Named{{Name: name}}}
}

// String returns the names and the owner's host, process and label, without the token.
func (h Handle) String() string {
	if len(h.names) == 0 {
		return "no lease"
	}
	var names []string
	for _, n := range h.names {
		names = append(names, strconv.Quote(n.Name))
	}
	return strings.Join(names, ", ") + " of " + shortToken(h.token)
}

// GoString returns the same as String.
func (h Handle) GoString() string { return h.String() }

// LogValue returns the same as String, for package slog.
func (h Handle) LogValue() slog.Value { return slog.StringValue(h.String()) }

// MarshalText returns the complete handle, with the token, as a line of UTF-8. The zero Handle
// returns an empty text. Invalid names or tokens are ErrInvalid.
func (h Handle) MarshalText() ([]byte, error) {
	if len(h.names) == 0 {
		return nil, nil
	}
	if err := h.check(); err != nil {
		return nil, err
	}
	text := []byte(h.token)
	for _, n := range h.names {
		text = strconv.AppendUint(append(text, ' '), n.Fence, 10)
		text = strconv.AppendQuote(append(text, ':'), n.Name)
	}
	return text, nil
}

// UnmarshalText parses the text from MarshalText. It returns ErrInvalid for any other text.
func (h *Handle) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		*h = Handle{}
		return nil
	}
	token, rest, _ := strings.Cut(string(text), " ")
	read := Handle{token: token}
	for more := true; more; {
		fence, quoted, _ := strings.Cut(rest, ":")
		n, err := strconv.ParseUint(fence, 10, 64)
		name, quotedErr := strconv.QuotedPrefix(quoted)
		if cmp.Or(err, quotedErr) != nil {
			return errBadHandle
		}
		rest, more = strings.CutPrefix(quoted[len(name):], " ")
		if name, err = strconv.Unquote(name); err != nil || !more && rest != "" {
			return errBadHandle
		}
		read.names = append(read.names, leasestate.Named{Name: name, Fence: n})
	}
	if err := read.check(); err != nil {
		return err
	}
	*h = read
	return nil
}

var errBadHandle = invalid("the text is not that of a Handle")

// check returns ErrInvalid for names or a token that no lease can have.
func (h Handle) check() error {
	if n := len(h.names); n == 0 || n > driver.MaxNames {
		return invalid("handle of %d names: not within 1 to %d", n, driver.MaxNames)
	}
	for i, n := range h.names {
		if err := driver.CheckName(n.Name); err != nil {
			return err
		}
		if slices.ContainsFunc(h.names[:i], func(o leasestate.Named) bool { return o.Name == n.Name }) {
			return invalid("handle: the name %q is in it twice", n.Name)
		}
	}
	if h.token == "" || !isPlain(h.token, maxToken) {
		return invalid("owner token of %q: want 1 to %d bytes of printable UTF-8 without spaces", h.names[0].Name, maxToken)
	}
	return nil
}

// first returns the first name, or an empty string.
func (h Handle) first() string {
	if len(h.names) == 0 {
		return ""
	}
	return h.names[0].Name
}

var _ fmt.GoStringer = Handle{}
