package zkstore

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/driver/inbox"
	"github.com/go-zookeeper/zk"
)

// A letter notifies a client that its lease was revoked. Its znode is CLIENT-0000000003. The client
// deletes it, or another revocation some minutes later.
type letter struct {
	Token  string `json:"token"`
	Fence  uint64 `json:"fence"`
	Reason string `json:"reason,omitempty"`
}

// oldLetter is the age at which nobody reads a letter any more.
const oldLetter = 10 * time.Minute

// Revoke implements driver.Revoker. A znode notifies the lease's client, also after a short
// disconnection.
func (s *Store) Revoke(ctx context.Context, r driver.RevokeRequest) (bool, error) {
	if err := driver.CheckRevoke(r); err != nil {
		return false, err
	}
	ctx, cancel, err := s.begin(ctx, "revoke", r.Name, noLimit)
	if err != nil {
		return false, err
	}
	defer cancel()
	revoked, err := again(func() (bool, error) { return s.revoke(ctx, r) })
	if err != nil {
		return false, unavailable("revoke", r.Name, err)
	}
	return revoked, nil
}

func (s *Store) revoke(ctx context.Context, r driver.RevokeRequest) (bool, error) {
	l, err := s.sessions.get(ctx)
	if err != nil {
		return false, err
	}
	q, pzxid, err := s.readFresh(ctx, l, r.Name)
	if err != nil {
		return false, err
	}
	details, err := s.detailsOf(ctx, l, r.Name, q[:q.granted()])
	if err != nil {
		return false, err
	}
	for _, d := range details {
		if d.foreign() || d.value.Waiting || !s.isRevoked(r, d) {
			continue
		}
		if err := s.removeWithLetter(ctx, l, r, d, cmp.Or(r.Fence, s.fences.upTo(pzxid))); err != nil {
			return false, err
		}
		if rec, ok := s.records.get(r.Name, d.value.Token); ok && rec.entry.name == d.name {
			s.forget(rec)
		}
		return true, nil
	}
	return false, nil
}

// removeWithLetter deletes a holder's entry, and writes a letter to its client. It returns errAgain if
// the entry ended or moved.
func (s *Store) removeWithLetter(ctx context.Context, l *link, r driver.RevokeRequest, d detail, fence uint64) error {
	ops := []any{&zk.DeleteRequest{Path: s.keys.entry(r.Name, d.name), Version: -1}}
	if d.value.Client != "" && !d.reserved {
		if err := l.makePath(ctx, s.keys.letters(), s.config.acl, false); err != nil {
			return err
		}
		text, err := json.Marshal(letter{d.value.Token, fence, r.Reason})
		if err != nil {
			return err
		}
		path := s.keys.letters() + "/" + escape(d.value.Client) + "-"
		ops = append(ops, &zk.CreateRequest{Path: path, Data: text, Acl: s.config.acl, Flags: zk.FlagSequence})
	}
	_, err := l.multi(ctx, ops...)
	if errors.Is(err, zk.ErrNoNode) {
		return errAgain
	}
	if err == nil {
		s.removeOldLetters(ctx, l)
	}
	return err
}

// removeOldLetters deletes the letters to clients that ended. It does not matter if that fails.
func (s *Store) removeOldLetters(ctx context.Context, l *link) {
	names, _, _, err := l.children(ctx, s.keys.letters(), false)
	if err != nil {
		return
	}
	now, _, err := s.leaderTime(ctx, l)
	if err != nil {
		return
	}
	for _, name := range names[:min(len(names), 100)] {
		path := s.keys.letters() + "/" + name
		_, stat, err := l.get(ctx, path)
		if err == nil && now.Sub(time.UnixMilli(stat.Ctime)) > oldLetter {
			_, _ = l.remove(ctx, path, -1)
		}
	}
}

// isRevoked reports whether a request selects a holder. The process that holds the lease knows a
// fence that the entry does not say.
func (s *Store) isRevoked(r driver.RevokeRequest, d detail) bool {
	if r.Token != "" {
		return d.value.Token == r.Token
	}
	rec, ok := s.records.get(r.Name, d.value.Token)
	if ok && rec.entry.name == d.name && rec.held {
		return rec.fence == r.Fence
	}
	return d.value.Fence == r.Fence
}

// readLetters delivers the letters to a client, and deletes them. It returns a channel that is closed
// when there may be others.
func (s *Store) readLetters(ctx context.Context, l *link, client string, in *inbox.Inbox) (<-chan struct{}, error) {
	names, _, fired, err := l.children(ctx, s.keys.letters(), true)
	if errors.Is(err, zk.ErrNoNode) {
		if err = l.makePath(ctx, s.keys.letters(), s.config.acl, false); err == nil {
			names, _, fired, err = l.children(ctx, s.keys.letters(), true)
		}
	}
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if rest, _, ok := cutSeq(name); !ok || strings.TrimSuffix(rest, "-") != escape(client) {
			continue
		}
		path := s.keys.letters() + "/" + name
		data, _, err := l.get(ctx, path)
		switch {
		case errors.Is(err, zk.ErrNoNode):
			continue
		case err != nil:
			return nil, err
		}
		var text letter
		if json.Unmarshal(data, &text) == nil && text.Token != "" {
			in.Send(driver.Event{Kind: driver.EventRevoked, Token: text.Token, Fence: text.Fence, Reason: text.Reason})
		}
		if _, err := l.remove(ctx, path, -1); err != nil {
			return nil, err
		}
	}
	return fired, nil
}
