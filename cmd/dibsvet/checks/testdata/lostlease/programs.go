package lostlease

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/dibslock/dibs"
)

// Forms of programs that had another lock library before.

type app struct {
	locks *dibs.Client
	lease *dibs.Lease
}

// acquire returns the function that releases, as many wrappers do.
func (a *app) acquire(ctx context.Context, key string) (release func(), err error) {
	lease, err := a.locks.Mutex("lock:"+key, dibs.TTL(10*time.Second)).Lock(ctx)
	if err != nil {
		return nil, fmt.Errorf("acquire %s: %w", key, err)
	}
	return func() {
		if err := lease.Unlock(); err != nil {
			slog.Error("unlock", "key", key, "err", err)
		}
	}, nil
}

// withLock runs a function, and logs what Unlock returns.
func (a *app) withLock(ctx context.Context, key string, f func(ctx context.Context) error) error {
	lease, err := a.locks.Mutex(key).TryLock(ctx)
	if errors.Is(err, dibs.ErrBusy) {
		slog.Info("another instance has the job")
		return nil
	} else if err != nil {
		return err
	}
	defer func() {
		if err := lease.Unlock(); err != nil && !errors.Is(err, dibs.ErrLost) {
			slog.Warn("unlock", "err", err)
		}
	}()
	return f(lease.Context())
}

func (a *app) handler(w http.ResponseWriter, r *http.Request) {
	lease, err := a.locks.Mutex("order:"+r.PathValue("id")).Lock(r.Context(), dibs.Wait(time.Second))
	switch {
	case errors.Is(err, dibs.ErrBusy):
		http.Error(w, "busy", http.StatusConflict)
		return
	case err != nil:
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	defer lease.Unlock()
	w.WriteHeader(http.StatusNoContent)
}

func (a *app) handlerWithEarlyReturn(w http.ResponseWriter, r *http.Request) {
	lease, err := a.locks.Mutex("order").TryLock(r.Context()) // want `the lease lease is not unlocked on all paths`
	if err != nil {
		http.Error(w, "busy", http.StatusConflict)
		return
	}
	if r.Method != http.MethodPost {
		http.Error(w, "method", http.StatusMethodNotAllowed)
		return
	}
	if err := lease.Unlock(); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

// start keeps the lease in a field until stop.
func (a *app) start(ctx context.Context) (err error) {
	if a.lease, err = a.locks.Mutex("leader").Lock(ctx); err != nil {
		return err
	}
	go func() {
		<-a.lease.Context().Done()
		slog.Warn("lost")
	}()
	return nil
}

// poll tries again with a ticker.
func (a *app) poll(ctx context.Context) error {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		lease, err := a.locks.Mutex("poll").TryLock(ctx)
		if err == nil {
			defer lease.Unlock()
			return work(lease.Context())
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
	}
}

// pollAndContinue does a bit of work at each tick, and skips it after an error.
func (a *app) pollAndContinue(ctx context.Context, ticks <-chan time.Time) {
	for range ticks {
		lease, err := a.locks.Mutex("poll").TryLock(ctx) // want `the lease lease is not unlocked on all paths`
		if err != nil {
			continue
		}
		if err := work(lease.Context()); err != nil {
			slog.Error("work", "err", err)
			continue
		}
		_ = lease.Unlock()
	}
}

// doubleChecked reads again under the lock, as caches do.
func (a *app) doubleChecked(ctx context.Context, get func(string) (string, bool)) (string, error) {
	if value, ok := get("key"); ok {
		return value, nil
	}
	lease, err := a.locks.Mutex("key").Lock(ctx) // want `the lease lease is not unlocked on all paths`
	if err != nil {
		return "", err
	}
	if value, ok := get("key"); ok {
		return value, nil
	}
	return "", errors.Join(work(lease.Context()), lease.Unlock())
}

// recovered releases in the function that recovers.
func (a *app) recovered(ctx context.Context) (err error) {
	lease, err := a.locks.Mutex("key").Lock(ctx)
	if err != nil {
		return err
	}
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
		err = errors.Join(err, lease.Unlock())
	}()
	return work(lease.Context())
}
