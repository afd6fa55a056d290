package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/dibslock/dibs/dashboard/view"
	"github.com/dibslock/dibs/driver"
)

// checkForeign rejects values that unlock does not end: a value other than a lock; with --force
// also possible data, and a foreign lock in a store that cannot compare it. With --token, the
// caller knows the whole value.
func (u unlockRequest) checkForeign(s *opened, seen driver.State) error {
	f := seen.Foreign
	switch {
	case u.token != "", f != nil && f.Lock && !u.force, f != nil && f.Removable() && s.Has("ForeignRevoker"):
		return nil
	case f != nil:
		advice := strings.ReplaceAll(f.Advice, "; ", "\n")
		return fmt.Errorf("unlock %q: key %q holds a %s that unlock does not delete: %s\n%s", seen.Name, f.Key, f.Type, f.Kind, advice)
	case !u.force:
		return nil
	}
	for _, h := range seen.Holders {
		if h.NeverExpires() && view.OwnerOf(h.Token).Host == "" {
			return fmt.Errorf("unlock %q: its key never expires, and its value is not of dibs: it may be data, which --force does not delete", seen.Name)
		}
	}
	return nil
}

// endForeign ends the foreign lock in seen, and no other lock.
func (u unlockRequest) endForeign(ctx context.Context, s *opened, seen driver.State, result *view.Unlocked) (err error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	result.Ended, result.Kind = []view.Holder{}, seen.Foreign.Kind
	result.Did, err = s.RevokeForeign(ctx, u.name, *seen.Foreign)
	if err != nil || result.Did == "" {
		return err
	}
	result.Ended = view.StateOf(seen, time.Now()).Holders
	return nil
}
