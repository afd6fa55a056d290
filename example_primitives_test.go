package dibs_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/memstore"
)

func ExampleRWMutex() {
	ctx := context.Background()
	locks := dibs.New(memstore.New())
	defer locks.Close()
	catalogue := locks.RWMutex("catalogue")

	// Page views read, beside other readers.
	show := func(ctx context.Context) (string, error) { return "page 1", nil }
	page, err := dibs.Call(ctx, catalogue.Reader(), show)
	fmt.Println(page, err)

	// The import writes, exclusively.
	err = catalogue.Writer().Do(ctx, func(context.Context) error {
		_, err := catalogue.Reader().TryLock(context.Background()) // a page view at the same time
		fmt.Println("no page view during the import:", errors.Is(err, dibs.ErrBusy))
		return nil
	})
	fmt.Println(err)
	// Output:
	// page 1 <nil>
	// no page view during the import: true
	// <nil>
}

func ExampleLease_Downgrade() {
	ctx := context.Background()
	locks := dibs.New(memstore.New())
	defer locks.Close()
	prices := locks.RWMutex("prices")

	lease, err := prices.Writer().Lock(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer lease.Unlock()
	fmt.Println("prices are set")

	// The report reads them beside other readers, and before another writer can change
	// them.
	if err := lease.Downgrade(ctx); err != nil {
		fmt.Println(err)
		return
	}
	reader, err := prices.Reader().TryLock(ctx)
	fmt.Println("another reader:", err)
	_, err = prices.Writer().TryLock(ctx)
	fmt.Println("another writer is busy:", errors.Is(err, dibs.ErrBusy))
	reader.Unlock()
	// Output:
	// prices are set
	// another reader: <nil>
	// another writer is busy: true
}

func ExampleSemaphore() {
	ctx := context.Background()
	locks := dibs.New(memstore.New())
	defer locks.Close()

	// All machines together may send four requests to the partner at a time. An upload
	// counts as three.
	partner := locks.Semaphore("api:partner", 4)
	upload, err := partner.Permits(3).Lock(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	err = partner.Permits(1).Do(ctx, func(ctx context.Context) error {
		_, err := partner.Permits(1).TryLock(context.Background())
		fmt.Println("no fifth permit:", errors.Is(err, dibs.ErrBusy))
		return nil
	}, dibs.Wait(time.Second))
	fmt.Println(err)
	fmt.Println(upload.Unlock())
	// Output:
	// no fifth permit: true
	// <nil>
	// <nil>
}

func ExampleClient_All() {
	ctx := context.Background()
	locks := dibs.New(memstore.New())
	defer locks.Close()
	balance := map[string]int{"alice": 100, "bob": 100}

	// Whatever the order of the names, two transfers never deadlock.
	transfer := func(from, to string, amount int) error {
		return locks.All([]string{"account:" + from, "account:" + to}).Do(ctx, func(context.Context) error {
			balance[from] -= amount
			balance[to] += amount
			return nil
		})
	}
	var group sync.WaitGroup
	group.Go(func() { fmt.Println(transfer("alice", "bob", 30)) })
	group.Go(func() { fmt.Println(transfer("bob", "alice", 10)) })
	group.Wait()
	fmt.Println(balance)
	// Output:
	// <nil>
	// <nil>
	// map[alice:80 bob:120]
}

func ExampleElection_Run() {
	ctx := context.Background()
	locks := dibs.New(memstore.New())
	defer locks.Close()

	// Every replica calls Run, and fn runs in a single replica at a time. When ctx ends, the
	// process is no longer the leader and fn must return.
	err := locks.Election("scheduler").Run(ctx, func(ctx context.Context) error {
		term, err := dibs.Fence(ctx)
		if err != nil {
			return err
		}
		for job := 1; ctx.Err() == nil; job++ {
			if job > 3 {
				return nil // no work is left
			}
			fmt.Println("job", job, "in a term with a fence:", term > 0)
		}
		return ctx.Err()
	})
	fmt.Println(err)
	// Output:
	// job 1 in a term with a fence: true
	// job 2 in a term with a fence: true
	// job 3 in a term with a fence: true
	// <nil>
}

func ExampleElection_Watch() {
	ctx := context.Background()
	locks := dibs.New(memstore.New())
	defer locks.Close()
	term, err := locks.Election("scheduler", dibs.Label("east")).Campaign(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}

	for leader, err := range locks.Election("scheduler").Watch(ctx) {
		switch {
		case err != nil:
			fmt.Println("unknown:", err)
		case leader.Token == "":
			fmt.Println("no leader")
			return
		default:
			fmt.Println(leader.Label, "leads and resigns:", term.Unlock())
		}
	}
	// Output:
	// east leads and resigns: <nil>
	// no leader
}

func ExampleOnce() {
	ctx := context.Background()
	store := memstore.New()

	// Cron starts the job on each machine at about the same time.
	for _, machine := range []string{"east", "west"} {
		locks := dibs.New(store)
		defer locks.Close()
		err := locks.Once("report:daily", time.Hour).Do(ctx, func(context.Context) error {
			fmt.Println(machine, "sends the report")
			return nil
		})
		switch {
		case errors.Is(err, dibs.ErrSkipped):
			fmt.Println("another machine has sent it;", machine, "does nothing")
		case err != nil:
			fmt.Println(machine, err)
		}
	}
	// Output:
	// east sends the report
	// another machine has sent it; west does nothing
}

// A failed run leaves the job to the next machine.
func ExampleRetryFailed() {
	ctx := context.Background()
	store := memstore.New()

	for _, machine := range []string{"east", "west"} {
		locks := dibs.New(store)
		defer locks.Close()
		err := locks.Once("report:daily", time.Hour, dibs.RetryFailed()).Do(ctx, func(context.Context) error {
			if machine == "east" {
				return errors.New("no connection to the database")
			}
			return nil
		})
		fmt.Println(machine, err)
	}
	// Output:
	// east no connection to the database
	// west <nil>
}

func ExampleClient_Revoke() {
	ctx := context.Background()
	store := memstore.New()
	worker := dibs.New(store, dibs.Label("worker-3"))
	defer worker.Close()
	lease, err := worker.Mutex("import").Lock(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}

	// The worker hangs. An operator finds its lease and revokes it, and cannot revoke a later lease
	// by mistake.
	operator := dibs.New(store)
	defer operator.Close()
	state, err := operator.Inspect(ctx, "import")
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, h := range state.Holders {
		revoked, err := operator.Revoke(ctx, "import", dibs.Holder{Fence: h.Fence}, "")
		fmt.Println(h.Label, "holds it; revoked:", revoked, err)
	}
	_, err = operator.Mutex("import").TryLock(ctx)
	fmt.Println("free:", err == nil)
	fmt.Println("the worker gets ErrLost:", errors.Is(lease.Unlock(), dibs.ErrLost))
	// Output:
	// worker-3 holds it; revoked: true <nil>
	// free: true
	// the worker gets ErrLost: true
}
