package etcdstore

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/driver/inbox"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// errWatchEnded means that etcd or its client ended a watch without a reason.
var errWatchEnded = errors.New("the watch ended")

// Watch implements driver.Store. It watches the keys for revocations of the client's leases. The
// grants for the client's waiters come from their own watches, on the same connection.
func (s *Store) Watch(ctx context.Context, client string, _ func() bool, on func(driver.Event)) error {
	if s == nil || s.cli == nil {
		return errNoClient
	}
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	in := inbox.New(ctx, on)
	s.inboxes.Add(client, in)
	defer func() {
		s.inboxes.Remove(client, in)
		cancel()
		s.views.removeInbox(in)
		in.Close()
	}()
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		begin := time.Now()
		err := s.watchLetters(ctx, client, in)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if time.Since(begin) > longestPause {
			pause = firstPause
		}
		if !isNewLogin(err) || pause == longestPause {
			in.Send(driver.Event{Kind: driver.EventDisconnected, Err: unavailable("watch", "", err)})
		}
		sleep(ctx, pause)
	}
}

// isNewLogin reports whether a member does not know the client's login, which another member accepted.
// The other members learn of it a moment later. The etcd client repeats other requests, but no watch:
// its error is only the text of the server's error.
func isNewLogin(err error) bool {
	return strings.Contains(err.Error(), rpctypes.ErrInvalidAuthToken.Error())
}

// Pauses before a watch begins again.
const (
	firstPause   = 50 * time.Millisecond
	longestPause = 2 * time.Second
)

// sleep waits for a time, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// watchLetters delivers revocations until the watch fails.
func (s *Store) watchLetters(ctx context.Context, client string, in *inbox.Inbox) error {
	if err := s.loadBase(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	watch := s.cli.Watch(ctx, s.keys.letters(client), clientv3.WithPrefix(), clientv3.WithCreatedNotify(), clientv3.WithFilterDelete())
	for reply := range watch {
		if err := reply.Err(); err != nil {
			return err
		}
		if reply.Created {
			in.Send(driver.Event{Kind: driver.EventConnected})
		}
		for _, e := range reply.Events {
			s.deliver(in, e.Kv)
		}
	}
	return errWatchEnded
}

// loadBase reads the base of the fences.
func (s *Store) loadBase(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, driver.OperationTimeout)
	defer cancel()
	return s.fences.load(ctx, s.cli, s.keys.base())
}

// deliver delivers a letter.
func (s *Store) deliver(in *inbox.Inbox, kv *mvccpb.KeyValue) {
	var l letter
	if json.Unmarshal(kv.Value, &l) != nil || l.Token == "" {
		return // another program wrote it
	}
	if l.Fence == 0 {
		l.Fence = s.fences.own(kv.ModRevision)
	}
	in.Send(driver.Event{Kind: driver.EventRevoked, Token: l.Token, Fence: l.Fence, Reason: l.Reason})
}
