package dibs_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/memstore"
)

// Many processes read a configuration, and one at a time changes it. A reader never sees half a
// change.
func ExampleRWMutex() {
	ctx := context.Background()
	locks := dibs.New(memstore.New(), dibs.Wait(3*time.Second))
	defer locks.Close()
	config := locks.RWMutex("config")
	values := map[string]string{"region": "east", "bucket": "east-1"} // in a store that all processes use

	read := func(context.Context) (string, error) { return values["region"] + " " + values["bucket"], nil }
	change := func(ctx context.Context) error {
		values["region"] = "west"
		_, err := config.Reader().TryLock(context.Background()) // another process
		fmt.Println("no reader during the change:", errors.Is(err, dibs.ErrBusy))
		values["bucket"] = "west-1"
		return nil
	}
	text, err := dibs.Call(ctx, config.Reader(), read)
	fmt.Println(text, err)
	fmt.Println(config.Writer().Do(ctx, change))
	text, err = dibs.Call(ctx, config.Reader(), read)
	fmt.Println(text, err)
	// Output:
	// east east-1 <nil>
	// no reader during the change: true
	// <nil>
	// west west-1 <nil>
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

// All machines together have eight GPUs. A training needs two of them: it gets both, or waits.
func ExampleSemaphore() {
	ctx := context.Background()
	locks := dibs.New(memstore.New())
	defer locks.Close()
	pool := locks.Semaphore("gpus", 8) // the same number in each program

	err := pool.Permits(2).Do(ctx, func(ctx context.Context) error {
		fmt.Println("train on 2 GPUs")                          // until ctx ends
		_, err := pool.Permits(7).TryLock(context.Background()) // another machine
		fmt.Println("7 others are not free:", errors.Is(err, dibs.ErrBusy))
		return ctx.Err()
	}, dibs.Wait(time.Minute), dibs.MaxHold(12*time.Hour))
	fmt.Println(err)
	// Output:
	// train on 2 GPUs
	// 7 others are not free: true
	// <nil>
}

// Whatever the order of the names, two transfers never deadlock.
func ExampleClient_All() {
	locks := dibs.New(memstore.New(), dibs.Wait(3*time.Second))
	defer locks.Close()
	bank := &fencedTable{rows: map[string]row{"alice": {balance: 100}, "bob": {balance: 100}}}

	transfer := func(ctx context.Context, from, to string, amount int) error {
		a, b := "account:"+from, "account:"+to
		return locks.All([]string{a, b}).Do(ctx, func(ctx context.Context) error {
			fenceA, errA := dibs.FenceOf(ctx, a)
			fenceB, errB := dibs.FenceOf(ctx, b)
			if err := errors.Join(errA, errB); err != nil {
				return err
			}
			return bank.update(map[string]row{
				from: {bank.get(from) - amount, fenceA},
				to:   {bank.get(to) + amount, fenceB},
			})
		})
	}
	ctx := context.Background()
	var group sync.WaitGroup
	group.Go(func() { fmt.Println(transfer(ctx, "alice", "bob", 30)) })
	group.Go(func() { fmt.Println(transfer(ctx, "bob", "alice", 10)) })
	group.Wait()
	fmt.Println("alice", bank.get("alice"), "bob", bank.get("bob"))
	// Output:
	// <nil>
	// <nil>
	// alice 80 bob 120
}

// A fencedTable rejects a change with a smaller fence than its row has stored. In SQL:
//
//	UPDATE accounts SET balance = $1, fence = $2 WHERE id = $3 AND fence <= $2
type fencedTable struct {
	mu   sync.Mutex
	rows map[string]row
}

type row struct {
	balance int
	fence   uint64
}

func (t *fencedTable) get(id string) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.rows[id].balance
}

func (t *fencedTable) update(changes map[string]row) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for id, c := range changes {
		if c.fence < t.rows[id].fence {
			return fmt.Errorf("%s: fence %d is too small: the lease was lost", id, c.fence)
		}
	}
	maps.Copy(t.rows, changes)
	return nil
}

// Each replica calls Run, and one at a time leads. A replica that is stopped finishes its job, and
// the next one leads at once.
func ExampleElection_Run() {
	store := memstore.New()
	locks, other := dibs.New(store), dibs.New(store)
	defer locks.Close()
	defer other.Close()
	ctx, stop := context.WithCancel(context.Background()) // in a program: signal.NotifyContext
	defer stop()

	err := locks.Election("scheduler", dibs.TTL(10*time.Second)).Run(ctx, func(ctx context.Context) error {
		term, err := dibs.Fence(ctx)
		if err != nil {
			return err
		}
		for job := 1; ctx.Err() == nil; job++ { // ctx also ends when the term is lost
			fmt.Println("job", job, "with the number of the term:", term > 0)
			if job == 2 {
				stop() // SIGTERM arrives
			}
		}
		return ctx.Err()
	})
	fmt.Println("stopped:", err)
	next, err := other.Election("scheduler").Campaign(context.Background(), dibs.Wait(0))
	fmt.Println("the next replica leads:", err)
	fmt.Println(next.Unlock())
	// Output:
	// job 1 with the number of the term: true
	// job 2 with the number of the term: true
	// stopped: <nil>
	// the next replica leads: <nil>
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

// Cron starts the job on five replicas at about the same time, and one of them runs it.
func ExampleOnce() {
	store := memstore.New()
	report := func(context.Context) error { // the context ends after 2 hours, or if the lock is lost
		fmt.Println("send the report")
		return nil
	}
	nightly := func(locks *dibs.Client) string {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Hour)
		defer cancel()
		// The interval is shorter than a day, because a run may begin a little earlier than the
		// last. It is longer than the differences between the clocks.
		err := locks.Once("report:nightly", 20*time.Hour).Do(ctx, report)
		switch {
		case errors.Is(err, dibs.ErrSkipped):
			return "skipped"
		case err != nil:
			return err.Error() // the job failed, or lost its lock: alert somebody
		}
		return "ran"
	}

	results := make(chan string)
	for range 5 {
		go func() {
			locks := dibs.New(store) // the client of a replica
			defer locks.Close()
			results <- nightly(locks)
		}()
	}
	count := map[string]int{}
	for range 5 {
		count[<-results]++
	}
	fmt.Println(count)
	// Output:
	// send the report
	// map[ran:1 skipped:4]
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
