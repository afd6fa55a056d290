package driver

import (
	"strings"
	"time"
	"unicode/utf8"
)

// CheckAcquire returns ErrInvalid for a request of Acquire or Resize that no store accepts.
// A store may reject more.
func CheckAcquire(c AcquireRequest) error {
	if err := CheckName(c.Name); err != nil {
		return err
	}
	for _, name := range c.With {
		if err := CheckName(name); err != nil {
			return err
		}
	}
	switch {
	case c.Weight < 1 || c.Weight > c.Limit || c.Limit > Unlimited:
		return invalidRequest("%q: weight %d of limit %d is out of range", c.Name, c.Weight, c.Limit)
	case len(c.With) > 0 && !c.Exclusive():
		return invalidRequest("%q and others: several names must be held exclusively", c.Name)
	case len(c.With) > 0 && c.Vote != nil:
		return invalidRequest("%q and others: a vote is for one name", c.Name)
	case c.TTL < time.Millisecond:
		return invalidRequest("%q: TTL %v is below 1ms", c.Name, c.TTL)
	}
	return checkOwner(c.Name, c.Token, c.Client)
}

func checkOwner(name, token, client string) error {
	switch {
	case token == "" || !utf8.ValidString(token):
		return invalidRequest("%q: the token is empty or not UTF-8", name)
	case client == "" || strings.ContainsAny(client, " \t\r\n\v\f") || !utf8.ValidString(client):
		return invalidRequest("%q: client %q is empty, not UTF-8, or contains white space", name, client)
	}
	return nil
}
