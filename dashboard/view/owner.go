package view

import (
	"fmt"

	"github.com/dibslock/dibs/driver/ownertoken"
)

// An Owner is an owner token's public part.
type Owner struct {
	Host, Label string // empty if dibs did not make the token
	PID         int
	Short       string // the token without its secret
}

// OwnerOf parses a dibs token: host:pid:random:secret, optionally with a label. It keeps only host,
// pid and label. Other tokens are opaque.
func OwnerOf(token string) Owner {
	if c, ok := ownertoken.ClientOf(token); ok {
		return Owner{Host: c.Host, PID: c.PID, Label: ownertoken.Label(token), Short: fmt.Sprintf("%s:%d:…", c.Host, c.PID)}
	}
	const known, public = 8, 2 // so short a value is not a secret
	r := []rune(token)
	if len(r) <= public {
		return Owner{Short: token}
	}
	return Owner{Short: string(r[:min(known, len(r)/2)]) + "…"}
}

// String formats the owner for people.
func (o Owner) String() string {
	s := o.Short
	if o.Host != "" {
		s = fmt.Sprintf("%s:%d", o.Host, o.PID)
	}
	if o.Label != "" {
		s += " (" + o.Label + ")"
	}
	return Safe(s)
}
