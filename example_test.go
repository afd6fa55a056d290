package dibs_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver/ownertoken"
	"github.com/dibslock/dibs/memstore"
)

// The examples use the memory store. With Redis the first line is
//
//	locks := dibs.New(goredisstore.New(rdb))
//
// and the rest is the same.

func ExampleMutex_Do() {
	ctx := context.Background()
	locks := dibs.New(memstore.New())
	defer locks.Close()

	err := locks.Mutex("order:42").Do(ctx, func(ctx context.Context) error {
		// ctx ends if the lease is lost.
		fence, err := dibs.Fence(ctx)
		fmt.Println("order 42 is locked, with a fence:", fence > 0)
		return err
	}, dibs.Wait(3*time.Second))
	fmt.Println(err)
	// Output:
	// order 42 is locked, with a fence: true
	// <nil>
}

// A handler pays an order once, on however many machines it runs. The second request waits for the
// first, and finds the order paid.
func ExampleMutex_Do_httpHandler() {
	locks := dibs.New(memstore.New(), dibs.Wait(3*time.Second)) // without Wait, a request may wait for ever
	defer locks.Close()
	orders := &paidOrders{fences: make(map[string]uint64)}

	pay := func(w http.ResponseWriter, r *http.Request) {
		order := r.PathValue("id")
		err := locks.Mutex("order:"+order).Do(r.Context(), func(ctx context.Context) error {
			fence, err := dibs.Fence(ctx)
			if err != nil || orders.paid(order) {
				return err
			}
			if err := charge(ctx, order); err != nil {
				return err
			}
			return orders.setPaid(order, fence)
		})
		var do *dibs.DoError
		switch {
		case err == nil:
			fmt.Fprintln(w, "order", order, "is paid")
		case errors.As(err, &do) && !do.Ran: // somebody holds the lock, or the store is unavailable
			http.Error(w, "nothing was charged: try again later", http.StatusServiceUnavailable)
		default: // declined, or the lock was lost during the payment
			http.Error(w, "look at the order before you try again", http.StatusInternalServerError)
		}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /orders/{id}/pay", pay)
	var requests sync.WaitGroup
	for range 2 {
		requests.Go(func() {
			answer := httptest.NewRecorder()
			mux.ServeHTTP(answer, httptest.NewRequest(http.MethodPost, "/orders/42/pay", nil))
			fmt.Print(answer.Body)
		})
	}
	requests.Wait()
	// Output:
	// charge order 42
	// order 42 is paid
	// order 42 is paid
}

// charge sends the payment to the bank, with the order as its idempotency key. The lock cannot
// replace that key: a process may crash between the payment and its record.
func charge(ctx context.Context, order string) error {
	fmt.Println("charge order", order)
	return ctx.Err()
}

// paidOrders is a table. In SQL, setPaid has the condition AND fence <= $1.
type paidOrders struct {
	mu     sync.Mutex
	fences map[string]uint64
}

func (o *paidOrders) paid(order string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.fences[order] > 0
}

func (o *paidOrders) setPaid(order string, fence uint64) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if fence < o.fences[order] {
		return fmt.Errorf("order %s: a later holder has written", order)
	}
	o.fences[order] = fence
	return nil
}

func ExampleMutex_Lock() {
	locks := dibs.New(memstore.New())
	defer locks.Close()

	// The named result returns the error of Unlock: ErrLost if the lease was lost.
	pay := func(ctx context.Context, order string) (err error) {
		lease, err := locks.Mutex("order:pay:"+order).Lock(ctx, dibs.Wait(10*time.Second), dibs.TTL(30*time.Second))
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, lease.Unlock()) }()

		fmt.Println("pay", order)
		return lease.Err() // nil: still held
	}
	fmt.Println(pay(context.Background(), "42"))
	// Output:
	// pay 42
	// <nil>
}

func ExampleMutex_TryLock() {
	ctx := context.Background()
	locks := dibs.New(memstore.New())
	defer locks.Close()

	lease, err := locks.Mutex("report", dibs.Label("nightly")).TryLock(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer lease.Unlock()

	_, err = locks.Mutex("report").TryLock(ctx)
	var busy *dibs.BusyError
	if errors.As(err, &busy) {
		fmt.Println("held by", ownertoken.Label(string(busy.Holder)))
	}
	// Output:
	// held by nightly
}

func ExampleCall() {
	ctx := context.Background()
	locks := dibs.New(memstore.New())
	defer locks.Close()
	balance := 100

	now, err := dibs.Call(ctx, locks.Mutex("balance:7"), func(ctx context.Context) (int, error) {
		balance += 50
		return balance, nil
	})
	fmt.Println(now, err)
	// Output:
	// 150 <nil>
}

func ExampleClient_Attach() {
	ctx := context.Background()
	store := memstore.New()

	// One process acquires the lock, and passes its handle on, over an encrypted connection.
	here := dibs.New(store)
	defer here.Close()
	lease, err := here.Mutex("import").Lock(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	message, err := json.Marshal(lease.Handle())
	if err != nil {
		fmt.Println(err)
		return
	}

	// Another process attaches to the lease. It receives the fence as well.
	there := dibs.New(store)
	defer there.Close()
	var handle dibs.Handle
	if err := json.Unmarshal(message, &handle); err != nil {
		fmt.Println(err)
		return
	}
	attached, err := there.Attach(ctx, handle)
	fmt.Println("attached:", err, attached.Fence() == lease.Fence())

	// The first process detaches: it neither renews nor releases the lock any more.
	fmt.Println("detached:", lease.Detach())
	fmt.Println("held there:", attached.Err())
	fmt.Println("released there:", attached.Unlock())
	// Output:
	// attached: <nil> true
	// detached: <nil>
	// held there: <nil>
	// released there: <nil>
}

func ExampleClient_Shutdown() {
	locks := dibs.New(memstore.New())
	mux := http.NewServeMux()
	working := make(chan struct{})
	mux.HandleFunc("POST /orders/{id}", func(w http.ResponseWriter, r *http.Request) {
		err := locks.Mutex("order:"+r.PathValue("id")).Do(r.Context(), func(context.Context) error {
			close(working) // the work begins; now SIGTERM arrives
			_, err := io.WriteString(w, "saved")
			return err
		})
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		}
	})
	server := httptest.NewServer(mux)
	answer := make(chan string)
	go func() {
		response, err := http.Post(server.URL+"/orders/42", "text/plain", nil)
		if err != nil {
			answer <- err.Error()
			return
		}
		defer response.Body.Close()
		body, _ := io.ReadAll(response.Body)
		answer <- string(body)
	}()
	<-working

	// On SIGTERM: first the server, which begins the work, and then the locks.
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	fmt.Println("server:", server.Config.Shutdown(ctx))
	fmt.Println("locks:", locks.Shutdown(ctx))
	fmt.Println("answer:", <-answer)
	// Output:
	// server: <nil>
	// locks: <nil>
	// answer: saved
}

func ExampleClient_Inspect() {
	ctx := context.Background()
	queued := make(chan struct{})
	locks := dibs.New(memstore.New(), dibs.Observe(dibs.Hooks{
		Queued: func(context.Context, dibs.Queued) { close(queued) },
	}))
	defer locks.Close()
	lease, err := locks.Mutex("deploy", dibs.Label("alice")).Lock(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	var bob sync.WaitGroup
	bob.Go(func() {
		err := locks.Mutex("deploy", dibs.Label("bob")).Do(ctx, func(context.Context) error { return nil })
		if err != nil {
			fmt.Println(err)
		}
	})
	<-queued

	state, err := locks.Inspect(ctx, "deploy")
	fmt.Println(err)
	for _, h := range state.Holders {
		fmt.Println(h.Label, "holds it for another", h.Remaining.Round(time.Second))
	}
	for i, w := range state.Waiters {
		fmt.Println(w.Label, "waits at position", i+1, "of", state.Waiting)
	}
	lease.Unlock()
	bob.Wait()
	// Output:
	// <nil>
	// alice holds it for another 30s
	// bob waits at position 1 of 1
}

func ExampleReentrant() {
	ctx := context.Background()
	locks := dibs.New(memstore.New())
	defer locks.Close()
	account := locks.Mutex("account:7")

	withdraw := func(ctx context.Context, options ...dibs.Option) error {
		return account.Do(ctx, func(context.Context) error { return nil }, options...)
	}
	err := account.Do(ctx, func(ctx context.Context) error {
		// The context already carries the lease on the account.
		err := withdraw(ctx)
		fmt.Println("without:", errors.Is(err, dibs.ErrReentrant))
		fmt.Println("with:", withdraw(ctx, dibs.Reentrant()))
		return nil
	})
	fmt.Println(err)
	// Output:
	// without: true
	// with: <nil>
	// <nil>
}

func ExampleObserve() {
	ctx := context.Background()
	locks := dibs.New(memstore.New(), dibs.Observe(dibs.Hooks{
		AcquireEnd: func(_ context.Context, a dibs.AcquireEnd) {
			fmt.Println("acquired", a.Name(), "after", a.Waited.Round(time.Second))
		},
		Released: func(_ context.Context, f dibs.Released) { fmt.Println("released", f.Name(), f.Err) },
	}))
	defer locks.Close()

	err := locks.Mutex("order:42").Do(ctx, func(context.Context) error { return nil })
	fmt.Println(err)
	// Output:
	// acquired order:42 after 0s
	// released order:42 <nil>
	// <nil>
}

func ExampleMinHold() {
	ctx := context.Background()
	store := memstore.New()

	// Two machines start the same job at midnight, and their clocks differ.
	for _, machine := range []string{"east", "west"} {
		locks := dibs.New(store)
		defer locks.Close()
		lease, err := locks.Mutex("job:midnight").TryLock(ctx, dibs.MinHold(time.Minute))
		if errors.Is(err, dibs.ErrBusy) {
			fmt.Println(machine, "does not run it")
			continue
		}
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(machine, "runs it and unlocks at once:", lease.Unlock())
	}
	// Output:
	// east runs it and unlocks at once: <nil>
	// west does not run it
}

// A DoError says whether the work ran, and separates the work's error from the lock's. Check for a
// loss first, because after a loss the rest is uncertain.
func ExampleDoError() {
	store := memstore.New()
	locks, other := dibs.New(store), dibs.New(store)
	defer locks.Close()
	defer other.Close()
	ctx := context.Background()

	pay := func(name string, work func(ctx context.Context) error) string {
		err := locks.Mutex(name).Do(ctx, work, dibs.Wait(0))
		var do *dibs.DoError
		switch {
		case !errors.As(err, &do):
			return "paid"
		case do.Ran && errors.Is(do.Lock, dibs.ErrLost):
			return "outcome unknown: look at the order before you try again"
		case do.Work != nil:
			return "an error of the work: " + do.Work.Error()
		case do.Ran: // only the release failed
			return "paid; the name is free when its TTL has passed, at the latest"
		case errors.Is(do.Lock, dibs.ErrBusy):
			return "somebody else pays it: try again later"
		default:
			return "nothing was done: " + do.Lock.Error()
		}
	}
	fmt.Println(pay("order:1", func(context.Context) error { return nil }))
	fmt.Println(pay("order:2", func(context.Context) error { return errors.New("declined") }))
	fmt.Println(pay("order:3", func(ctx context.Context) error {
		lease, err := dibs.LeaseOf(ctx, "order:3")
		if err != nil {
			return err
		}
		_, err = other.Revoke(ctx, "order:3", dibs.Holder{Fence: lease.Fence()}, "by an operator")
		<-ctx.Done()
		return err
	}))
	if _, err := other.Mutex("order:4").Lock(ctx); err != nil {
		fmt.Println(err)
	}
	fmt.Println(pay("order:4", func(context.Context) error { return nil }))
	// Output:
	// paid
	// an error of the work: declined
	// outcome unknown: look at the order before you try again
	// somebody else pays it: try again later
}
