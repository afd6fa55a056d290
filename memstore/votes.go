package memstore

import (
	"context"
	"errors"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/locktable"
)

// AcquireVote implements driver.Voter.
func (s *Store) AcquireVote(ctx context.Context, c driver.AcquireRequest, v driver.Vote) (reply driver.VoteReply, err error) {
	if err := errors.Join(driver.CheckVote(c), driver.CheckAcquire(c)); err != nil {
		return driver.VoteReply{}, err
	}
	if err := locktable.Admit(ctx, "acquire", c.Name, c.Until, time.Now()); err != nil {
		return driver.VoteReply{}, err
	}
	s.memory.run(func(t *locktable.Table, now locktable.Now) (notifications []locktable.Notification) {
		swept := t.Sweep(now)
		reply, notifications, err = t.AcquireVote(c, v, now)
		return append(swept, notifications...)
	})
	return reply, err
}

// ResizeVote implements driver.Voter.
func (s *Store) ResizeVote(ctx context.Context, c driver.AcquireRequest, v driver.Vote) (reply driver.AcquireReply, err error) {
	if err := driver.CheckAcquire(c); err != nil {
		return driver.AcquireReply{}, err
	}
	if err := locktable.Admit(ctx, "resize", c.Name, c.Until, time.Now()); err != nil {
		return driver.AcquireReply{}, err
	}
	s.memory.run(func(t *locktable.Table, now locktable.Now) (notifications []locktable.Notification) {
		reply, notifications = t.Resize(c, &v, now)
		return notifications
	})
	return reply, nil
}

// CancelVote implements driver.Voter.
func (s *Store) CancelVote(ctx context.Context, c driver.AcquireRequest, v driver.Vote) error {
	if err := locktable.Admit(ctx, "cancel", c.Name, c.Until, time.Now()); err != nil {
		return err
	}
	s.memory.run(func(t *locktable.Table, now locktable.Now) []locktable.Notification { return t.Cancel(c, &v, now) })
	return nil
}

// ReleaseVote implements driver.Voter.
func (s *Store) ReleaseVote(ctx context.Context, r driver.ReleaseRequest, v driver.Vote) (held bool, err error) {
	if err := locktable.Admit(ctx, "release", r.Name, r.Until, time.Now()); err != nil {
		return false, err
	}
	s.memory.run(func(t *locktable.Table, now locktable.Now) (notifications []locktable.Notification) {
		held, notifications = t.Release(r, &v, now)
		return notifications
	})
	return held, nil
}
