package view

import (
	"fmt"
	"strings"
	"time"

	"github.com/dibslock/dibs/driver"
)

// A Foreign describes a value at a name's key that dibs did not write.
type Foreign struct {
	Key       string `json:"key"`
	Type      string `json:"type"`      // in Redis
	Kind      string `json:"kind"`      // the likely origin
	Lock      bool   `json:"lock"`      // it is recognised as a lock
	TTL       *int64 `json:"ttl_ms"`    // null: never expires
	Removable bool   `json:"removable"` // unlock --force ends it
	Advice    string `json:"advice"`
}

func foreignOf(f *driver.Foreign) *Foreign {
	if f == nil {
		return nil
	}
	return &Foreign{Key: f.Key, Type: f.Type, Kind: f.Kind, Lock: f.Lock, TTL: ttlOf(f.Remaining), Removable: f.Removable(), Advice: f.Advice}
}

// Left returns the time until the key expires, or -1 for never.
func (f Foreign) Left() time.Duration { return leftOf(f.TTL) }

// Description explains the value, in words that follow the name.
func (f Foreign) Description() string {
	if f.Lock {
		return "is held by a foreign lock: " + Safe(f.Kind)
	}
	return "cannot be locked: its key holds no lock: " + Safe(f.Kind)
}

// describeForeign formats the name, its key's content, and advice.
func (n State) describeForeign(width int) string {
	const head = "to do: "
	f := n.Foreign
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s\n", Safe(n.Name), f.Description())
	b.WriteString(n.foreignTable().Fit(width).String())
	fmt.Fprintf(&b, "%s%s\n", head, strings.ReplaceAll(f.Advice, "; ", "\n"+strings.Repeat(" ", len(head))))
	return b.String()
}

// foreignTable contains a row for each owner, or a row without an owner.
func (n State) foreignTable() (t Table) {
	key, kind := Safe(n.Foreign.Key), Safe(n.Foreign.Type)
	t.Row("KEY", "TYPE", "HOLDER", "TTL")
	for _, h := range n.Holders {
		t.Row(key, kind, h.String(), Brief(h.Left()))
	}
	if len(n.Holders) == 0 {
		t.Row(key, kind, "-", Brief(n.Foreign.Left()))
		return t
	}
	if n.wholeTokens {
		t[0] = append(t[0], "TOKEN")
		for i, h := range n.Holders {
			t[i+1] = append(t[i+1], Safe(h.Token))
		}
	}
	return t
}

// isData reports whether the key holds a value that is nobody's lock.
func isData(f *driver.Foreign) bool { return f != nil && !f.Lock }
