package etcdstore

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/dibslock/dibs/driver"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// A letter notifies a client that its lease was revoked. etcd deletes it after some minutes.
type letter struct {
	Token  string `json:"token"`
	Fence  uint64 `json:"fence,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// Revoke implements driver.Revoker. A key in etcd notifies the lease's client, also after a short
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
	revoked, err := s.revoke(ctx, r)
	if err != nil {
		return false, unavailable("revoke", r.Name, err)
	}
	return revoked, nil
}

func (s *Store) revoke(ctx context.Context, r driver.RevokeRequest) (bool, error) {
	q, _, err := s.read(ctx, r.Name)
	if err != nil {
		return false, err
	}
	for _, e := range q.holders() {
		if e.foreign || !s.isRevoked(r, e) {
			continue
		}
		revoked, err := s.removeWithLetter(ctx, r, e)
		if errors.Is(err, rpctypes.ErrNoSpace) {
			revoked, err = s.remove(ctx, record{key: e.key, created: e.created}) // the client learns of it at its next renewal
		}
		if err != nil {
			return false, err
		}
		if rec, ok := s.records.get(r.Name, e.Token); ok && rec.key == e.key {
			s.forget(rec)
		}
		return revoked, nil
	}
	return false, nil
}

// removeWithLetter deletes a holder's entry, and writes a letter to its client.
func (s *Store) removeWithLetter(ctx context.Context, r driver.RevokeRequest, e entry) (bool, error) {
	if e.Client == "" || e.Reserved {
		return s.remove(ctx, record{key: e.key, created: e.created})
	}
	text, err := json.Marshal(letter{e.Token, r.Fence, r.Reason})
	if err != nil {
		return false, err
	}
	letters, err := s.sessions.forMarks(ctx)
	if err != nil {
		return false, err
	}
	put := clientv3.OpPut(s.keys.letter(e.Client, e.created), string(text), clientv3.WithLease(letters.id))
	reply, err := s.cli.Txn(ctx).If(exists(e.key, e.created)).Then(clientv3.OpDelete(e.key), put).Commit()
	if err != nil {
		return false, err
	}
	return reply.Succeeded, nil
}

// isRevoked reports whether a request selects a holder. The process that holds the lease knows a
// fence that the entry does not say.
func (s *Store) isRevoked(r driver.RevokeRequest, e entry) bool {
	if r.Token != "" {
		return e.Token == r.Token
	}
	if fence := s.fences.of(e); fence != 0 || e.Reserved {
		return fence == r.Fence
	}
	rec, ok := s.records.get(r.Name, e.Token)
	return ok && rec.key == e.key && rec.held && rec.fence == r.Fence
}
