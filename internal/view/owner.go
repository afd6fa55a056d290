package view

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/dibslock/dibs/driver"
)

// An Owner is the public part of an owner token.
type Owner struct {
	Host, Label string // empty if the token is not one of dibs
	PID         int
	Short       string // the token without its secret
}

// OwnerOf parses a token of dibs: host:pid:random:secret, optionally with a label. It
// keeps only host, pid and label. Other tokens are opaque.
func OwnerOf(token string) Owner {
	const random = 16 // characters, at least
	parts := strings.SplitN(token, ":", 5)
	if len(parts) >= 4 && parts[0] != "" && len(parts[2]) >= random && parts[3] != "" {
		if pid, err := strconv.Atoi(parts[1]); err == nil && pid > 0 {
			return Owner{Host: parts[0], PID: pid, Label: driver.LabelOf(token), Short: parts[0] + ":" + parts[1] + ":…"}
		}
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
