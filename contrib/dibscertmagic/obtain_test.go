package dibscertmagic_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddyserver/certmagic"
	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/contrib/dibscertmagic"
	"github.com/dibslock/dibs/internal/test/childtest"
	"github.com/dibslock/dibs/internal/test/redistest"
	"github.com/dibslock/dibs/memstore"
	"github.com/dibslock/dibs/redisstore"
)

// childTTL is the TTL for these tests' processes.
const childTTL = 3 * time.Second

func TestMain(m *testing.M) {
	childtest.Main(m, map[string]childtest.Role{"obtain": obtain, "hang": hang})
}

// obtain obtains the certificate. It prints a line when it asks the authority, and another with the
// certificate.
func obtain(out io.Writer, args []string) error {
	return runChild(out, args, func() error { return nil })
}

// hang asks the authority, and never ends.
func hang(out io.Writer, args []string) error {
	return runChild(out, args, func() error { select {} })
}

func runChild(out io.Writer, args []string, issuing func() error) error {
	server, dir := args[0], args[1]
	conn := redistest.Dial(server)
	defer conn.Close()
	locks := dibs.New(redisstore.New(conn))
	defer locks.Close()
	issuer, err := newAuthority(func(context.Context) error {
		fmt.Fprintln(out, "asks")
		return issuing()
	})
	if err != nil {
		return err
	}
	storage := dibscertmagic.New(&certmagic.FileStorage{Path: dir}, locks, dibs.TTL(childTTL))
	config, stop := newInstance(storage, issuer)
	defer stop()
	if err := config.ObtainCertAsync(context.Background(), domain); err != nil {
		return err
	}
	fmt.Fprintln(out, "has it")
	return nil
}

// Five instances start at once. The first asks the authority while the others wait, and the
// others find its certificate.
func TestAuthorityIsAskedOnce(t *testing.T) {
	const instances = 5
	server, dir := redistest.Start(t), t.TempDir()
	locks := newRedisClient(t, server)
	var asked atomic.Int32
	issuer, err := newAuthority(func(ctx context.Context) error {
		asked.Add(1)
		return waitFor(ctx, locks, instances-1)
	})
	noError(t, err)

	obtained := make(chan error, instances)
	for i := range instances {
		config, stop := newInstance(newStorage(t, dir, newRedisClient(t, server)), issuer)
		defer stop()
		go func() {
			if i%2 == 0 {
				obtained <- config.ObtainCertSync(t.Context(), domain)
			} else {
				obtained <- config.ObtainCertAsync(t.Context(), domain) // renews the lock before it asks
			}
		}()
	}
	for range instances {
		if err := <-obtained; err != nil {
			t.Error(err)
		}
	}
	if n := asked.Load(); n != 1 {
		t.Errorf("the authority was asked %d times, want once", n)
	}
}

// A process that dies while it asks the authority should block the others for the TTL.
func TestKilledWhileItAsks(t *testing.T) {
	server, dir := redistest.Start(t), t.TempDir()
	locks := newRedisClient(t, server)
	first := childtest.Start(t, "hang", server.Addr(), dir)
	if line := first.Line(); line != "asks" {
		t.Fatalf("the first process: %q", line)
	}
	second := childtest.Start(t, "obtain", server.Addr(), dir)
	noError(t, waitFor(t.Context(), locks, 1))

	first.Kill()
	killed := time.Now()
	if line := second.Line(); line != "asks" {
		t.Errorf("the second process: %q", line)
	}
	took := time.Since(killed)
	t.Logf("TTL %v: asked %v after the kill", childTTL, took.Round(time.Millisecond))
	if limit := childTTL + 2*time.Second; took > limit {
		t.Errorf("took %v, want at most %v", took, limit)
	}
	if line := second.Line(); line != "has it" {
		t.Errorf("the second process: %q", line)
	}
	noError(t, second.Wait())
}

// The lock is lost in the first attempt. CertMagic should acquire it again in the second, and
// obtain the certificate under it.
func TestLossWhileItAsks(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		locks := dibs.New(store)
		defer locks.Close()
		attempts := 0
		issuer, err := newAuthority(func(ctx context.Context) error {
			if attempts++; attempts == 1 {
				store.LoseData()
				return errors.New("not available")
			}
			state, err := store.Inspect(ctx, dibsName)
			if err == nil && len(state.Holders) != 1 {
				err = fmt.Errorf("no lock: %v", state)
			}
			return err
		})
		noError(t, err)
		config, stop := newInstance(newStorage(t, dir, locks), issuer)
		defer stop()
		begin := time.Now()
		noError(t, config.ObtainCertAsync(t.Context(), domain))
		if took := time.Since(begin); attempts != 2 || took > 2*time.Minute {
			t.Errorf("%d attempts in %v, want 2 in a minute", attempts, took)
		}
	})
}
