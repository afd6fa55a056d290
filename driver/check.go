package driver

import (
	"strings"
	"time"
	"unicode/utf8"
)

// CheckAcquire returns ErrInvalid if no store can accept the request to Acquire or Resize. A store
// can reject further requests.
func CheckAcquire(r AcquireRequest) error {
	if err := CheckName(r.Name); err != nil {
		return err
	}
	for _, name := range r.With {
		if err := CheckName(name); err != nil {
			return err
		}
	}
	switch {
	case r.Weight < 1 || r.Weight > r.Limit || r.Limit > Unlimited:
		return invalidRequest("%q: weight %d of limit %d is out of range", r.Name, r.Weight, r.Limit)
	case len(r.With) > 0 && !r.Exclusive():
		return invalidRequest("%q and others: several names must be held exclusively", r.Name)
	case len(r.With) > 0 && r.Vote != nil:
		return invalidRequest("%q and others: a vote is for one name", r.Name)
	case r.TTL < time.Millisecond:
		return invalidRequest("%q: TTL %v is below 1ms", r.Name, r.TTL)
	}
	return checkOwner(r.Name, r.Token, r.Client)
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
