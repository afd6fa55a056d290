package dibsgoose_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/contrib/dibsgoose"
	"github.com/dibslock/dibs/internal/test/childtest"
	"github.com/dibslock/dibs/internal/test/redistest"
	"github.com/dibslock/dibs/redisstore"
)

// childTTL is the TTL for these tests' processes.
const childTTL = 3 * time.Second

func TestMain(m *testing.M) {
	childtest.Main(m, map[string]childtest.Role{"migrate": migrate, "hang": hang})
}

// migrate runs the migrations, and prints how many it ran. It waits in the first until a number of
// replicas wait for the lock.
func migrate(out io.Writer, args []string) error {
	waiting, err := strconv.Atoi(args[2])
	if err != nil {
		return err
	}
	return runChild(out, args, func(locks *dibs.Client) steps {
		return steps{first: func(ctx context.Context) error { return waitFor(ctx, locks, waiting) }}
	})
}

// hang prints a line in the last migration, and never ends it.
func hang(out io.Writer, args []string) error {
	return runChild(out, args, func(*dibs.Client) steps {
		return steps{last: func(context.Context) error {
			fmt.Fprintln(out, "in the last migration")
			select {}
		}}
	})
}

func runChild(out io.Writer, args []string, do func(locks *dibs.Client) steps) error {
	server, file := args[0], args[1]
	conn := redistest.Dial(server)
	defer conn.Close()
	locks := dibs.New(redisstore.New(conn))
	defer locks.Close()
	db, err := open(file)
	if err != nil {
		return err
	}
	defer db.Close()
	provider, err := newProvider(db, dibsgoose.New(locks, name, dibs.TTL(childTTL)), do(locks))
	if err != nil {
		return err
	}
	results, err := provider.Up(context.Background())
	fmt.Fprintln(out, len(results))
	return err
}

// waitFor waits until this many replicas wait for the lock.
func waitFor(ctx context.Context, locks *dibs.Client, waiting int) error {
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		state, err := locks.Inspect(ctx, name)
		if err != nil || state.Waiting >= waiting {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%d replicas wait, want %d", state.Waiting, waiting)
		}
	}
}

// Five replicas and two processes start at once. A single replica runs all migrations, while all
// others wait.
func TestReplicas(t *testing.T) {
	const replicas, processes = 5, 2
	server, file := redistest.Start(t), newFile(t)
	var children []*childtest.Child
	for range processes {
		children = append(children, childtest.Start(t, "migrate", server.Addr(), file, strconv.Itoa(replicas+processes-1)))
	}
	type outcome struct {
		ran int
		err error
	}
	outcomes := make(chan outcome, replicas)
	for range replicas {
		locks := newRedisClient(t, server)
		provider := mustProvider(t, openForTest(t, file), dibsgoose.New(locks, name), steps{
			first: func(ctx context.Context) error { return waitFor(ctx, locks, replicas+processes-1) },
		})
		go func() {
			results, err := provider.Up(t.Context())
			outcomes <- outcome{len(results), err}
		}()
	}

	total := 0
	for range replicas {
		o := <-outcomes
		if o.err != nil {
			t.Error(o.err)
		}
		total += o.ran
	}
	for _, child := range children {
		var ran int
		if _, err := fmt.Sscan(child.Line(), &ran); err != nil {
			t.Fatal(err)
		}
		total += ran
		if err := child.Wait(); err != nil {
			t.Error(err)
		}
	}
	if total != 3 {
		t.Errorf("%d migrations ran, want 3", total)
	}
	wantVersion(t, openForTest(t, file), 3)
}

// A process that dies during a migration blocks the others for the TTL. The next runs the missing
// migrations.
func TestKilledDuringAMigration(t *testing.T) {
	server, file := redistest.Start(t), newFile(t)
	first := childtest.Start(t, "hang", server.Addr(), file)
	first.Line()
	locks := newRedisClient(t, server)
	second := childtest.Start(t, "migrate", server.Addr(), file, "0")
	if err := waitFor(t.Context(), locks, 1); err != nil {
		t.Fatal(err)
	}

	first.Kill()
	killed := time.Now()
	if ran := second.Line(); ran != "1" {
		t.Errorf("the second process ran %s migrations, want the last one", ran)
	}
	took := time.Since(killed)
	t.Logf("TTL %v: migrated %v after the kill", childTTL, took.Round(time.Millisecond))
	if limit := childTTL + 2*time.Second; took > limit {
		t.Errorf("took %v, want at most %v", took, limit)
	}
	if err := second.Wait(); err != nil {
		t.Error(err)
	}
	wantVersion(t, openForTest(t, file), 3)
}

// Without the lock store no migration should begin, and a migration that ended should be reported.
func TestStoreIsNotAvailable(t *testing.T) {
	server, file := redistest.Start(t), newFile(t)
	locker := dibsgoose.New(newRedisClient(t, server), name)
	db := openForTest(t, file)
	provider := mustProvider(t, db, locker, steps{last: func(context.Context) error {
		server.Kill()
		return nil
	}})

	server.Kill()
	_, err := provider.Up(t.Context())
	wantError(t, err, dibs.ErrUnavailable)
	wantVersion(t, db, 0)

	if err := server.Restart(); err != nil {
		t.Fatal(err)
	}
	results, err := provider.Up(t.Context())
	wantError(t, err, dibs.ErrUnavailable)
	if errors.Is(err, dibs.ErrLost) || len(results) != 3 {
		t.Errorf("%d migrations reported with %v, want 3 and no loss", len(results), err)
	}
	wantVersion(t, db, 3)
	if err := server.Restart(); err != nil { // for the client's end
		t.Fatal(err)
	}
}
