// Payment charges an order once, however often the customer presses the button.
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

// A cashier takes payments. There may be many, on many machines.
type cashier struct {
	locks  *dibs.Client
	orders *orders
	charge func(ctx context.Context, order string) error // the bank: slow, and never to be asked twice
}

var errPaid = errors.New("paid already")

// pay charges an order, unless somebody has.
func (c *cashier) pay(ctx context.Context, order string) (err error) {
	lease, err := c.locks.Mutex("order:pay:"+order).Lock(ctx, dibs.Wait(10*time.Second), dibs.TTL(30*time.Second))
	if err != nil {
		return err // nothing was charged
	}
	// Unlock says if the lease was lost meanwhile: the named result carries it out.
	defer func() { err = errors.Join(err, lease.Unlock()) }()

	// From here on the work ends with the lease, not with the customer's request:
	// who closes the browser now still gets what is being charged.
	ctx = lease.Context()
	if c.orders.paid(order) {
		return errPaid
	}
	if err := c.charge(ctx, order); err != nil {
		return err
	}
	return c.orders.markPaid(order, lease.Fence())
}

// explain tells a customer what came of a payment.
func explain(err error) string {
	switch {
	case err == nil:
		return "paid"
	case errors.Is(err, dibs.ErrLost): // first of all: it says that the rest is uncertain
		return "not sure whether it is paid, ask the bank before trying again"
	case errors.Is(err, errPaid):
		return "paid already, nothing charged"
	case errors.Is(err, dibs.ErrBusy):
		return "someone else is paying this order, nothing charged"
	default:
		return "failed: " + err.Error()
	}
}

// run lets two payers pay one order at the same time.
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
	for _, who := range payers {
		go func() {
			locks := dibs.New(store) // one for each, as on machines of their own
			defer locks.Close()
			c := &cashier{locks: locks, orders: orders, charge: slowBank}
			begin := time.Now()
			err := c.pay(ctx, "42")
			lines <- fmt.Sprintf("%s, after %3d ms: %s", who, time.Since(begin).Milliseconds(), explain(err))
		}()
	}
	for range payers {
		fmt.Fprintln(out, <-lines)
	}
	fmt.Fprintf(out, "charged %d time\n", orders.charges())
	return nil
}

// slowBank takes its time.
func slowBank(ctx context.Context, _ string) error {
	select {
	case <-time.After(300 * time.Millisecond):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
