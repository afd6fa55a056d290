// Payment charges an order once, even if the customer submits the payment several times.
//
//	go run ./examples/payment                                       in one process
//	DIBS_URL=redis://localhost:6379 go run ./examples/payment       locks on Redis
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/examples/internal/exstore"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Getenv("DIBS_URL"), os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "payment:", err)
		os.Exit(1)
	}
}

// A cashier charges orders. Many cashiers can run, on many machines.
type cashier struct {
	locks  *dibs.Client
	orders *orders
	charge func(ctx context.Context, order string) error // the bank, which is slow and must be called once
}

var errPaid = errors.New("already paid")

// pay charges an order, unless it is already paid.
func (c *cashier) pay(ctx context.Context, order string) (err error) {
	lease, err := c.locks.Mutex("order:pay:"+order).Lock(ctx, dibs.Wait(10*time.Second), dibs.TTL(30*time.Second))
	if err != nil {
		return err // nothing was charged
	}
	// Unlock returns ErrLost if the lease was lost: the named result returns it.
	defer func() { err = errors.Join(err, lease.Unlock()) }()

	// From here on, the work depends on the lease and not on the customer's request: a
	// payment goes on even if the customer closes the browser.
	ctx = lease.Context()
	if c.orders.paid(order) {
		return errPaid
	}
	if err := c.charge(ctx, order); err != nil {
		return err
	}
	return c.orders.markPaid(order, lease.Fence())
}

// explain returns a payment's result as a text for the customer.
func explain(err error) string {
	switch {
	case err == nil:
		return "paid"
	case errors.Is(err, dibs.ErrLost): // comes first: after a loss, the other errors are uncertain
		return "not sure whether it is paid, ask the bank before trying again"
	case errors.Is(err, errPaid):
		return "already paid, nothing charged"
	case errors.Is(err, dibs.ErrBusy):
		return "someone else is paying this order, nothing charged"
	default:
		return "failed: " + err.Error()
	}
}

// run lets two payers pay the same order concurrently.
func run(ctx context.Context, url string, out io.Writer) error {
	store, err := exstore.Open(ctx, url)
	if err != nil {
		return err
	}
	defer store.Close()
	fmt.Fprintf(out, "two payers for order 42, locks on %s\n", store.Description)

	orders := newOrders()
	lines := make(chan string)
	payers := []string{"web", "app"}
	for _, payer := range payers {
		go func() {
			locks := dibs.New(store) // one each, as on different machines
			defer locks.Close()
			c := &cashier{locks: locks, orders: orders, charge: slowBank}
			begin := time.Now()
			err := c.pay(ctx, "42")
			lines <- fmt.Sprintf("%s, after %3d ms: %s", payer, time.Since(begin).Milliseconds(), explain(err))
		}()
	}
	for range payers {
		fmt.Fprintln(out, <-lines)
	}
	fmt.Fprintf(out, "charged %d time\n", orders.charges())
	return nil
}

// slowBank charges in 300 ms.
func slowBank(ctx context.Context, _ string) error {
	select {
	case <-time.After(300 * time.Millisecond):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
