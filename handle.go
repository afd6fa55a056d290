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

// A Handle identifies a lease, so that another process or call can use it: see Client.Attach. It has
// the names, the owner token and the fences of the lease.
//
// A Handle is a secret, because it has the token. String, GoString and LogValue return a short form
// without it. MarshalText and UnmarshalText, and so package encoding/json, use the whole.
type Handle struct {
	token string
	names []leasestate.Named // with the fence of each name, or zero; none in the zero Handle
}

// Handle returns the handle of the lease. The handle of a shared lease has no fence, because fences of
// shared leases must not be compared. A nil or zero Lease has the zero Handle.
func (handle *Lease) Handle() Handle {
	if handle.isZero() {
		return Handle{}
	}
	l := handle.lease()
	s := l.LockState()
	defer l.UnlockState()
	h := Handle{token: s.Token, names: s.Names()}
	if s.IsShared() {
		for i := range h.names {
			h.names[i].Fence = 0
		}
	}
	return h
}

// NewHandle returns the handle of a lease on one name whose token the application has chosen: see
// OwnerToken. It does not have the fence. A lease attached with it has fence zero: pass the Handle of
// the lease on where the fence is needed.
func NewHandle(name, token string) Handle {
	return Handle{token: token, names: []leasestate.Named{{Name: name}}}
}

// String returns the names, and host, process and label of the owner: not the token.
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

// MarshalText returns the whole handle, with the token, as one line of UTF-8. The zero Handle has an
// empty text.
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

// UnmarshalText reads what MarshalText has written. It returns ErrInvalid for any other text.
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

// check returns ErrInvalid unless a lease can have the names and the token.
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
		return invalid("token for %q: want 1 to %d bytes of printable UTF-8 without spaces", h.names[0].Name, maxToken)
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
