// Declarative holds locks declared above the methods of an interface. It pays
// orders and changes a balance from several machines: through the generated decorator,
// around it, and without any lock.
//
//	go run ./examples/declarative                                       in one process
//	DIBS_URL=redis://localhost:6379 go run ./examples/declarative       locks on Redis
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/examples/internal/exstore"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Getenv("DIBS_URL"), os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "declarative:", err)
		os.Exit(1)
	}
}

const (
	machines = 8
	orders   = 5
	deposits = 25
)

func run(ctx context.Context, url string, out io.Writer) error {
	store, err := exstore.Open(ctx, url)
	if err != nil {
		return err
	}
	defer store.Close()
	fmt.Fprintf(out, "%d machines pay %d orders each, and deposit %d times 1; locks on %s\n", machines, orders, deposits, store.Description)

	locked := func(locks *dibs.Client, data *database) Shop {
		return LockShop(locks, &service{data, locks.Holds})
	}
	around := func(locks *dibs.Client, data *database) Shop { return &service{data, locks.Holds} }
	unlocked := func(_ *dibs.Client, data *database) Shop { return &service{data, noAssertion} }
	for _, scene := range []struct {
		title string
		shop  func(*dibs.Client, *database) Shop
	}{
		{"with the decorator", locked},
		{"around the decorator", around},
		{"without locks", unlocked},
	} {
		result, err := play(ctx, store, scene.shop)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "%-21s %3d charges for %d orders, balance %3d of %d, %3d calls refused\n",
			scene.title+":", result.charges, orders, result.balance, machines*deposits, result.refused)
	}
	return nil
}

func noAssertion(context.Context, string) error { return nil }

// result is the database's content after a scene.
type result struct {
	charges, refused int
	balance          int64
}

// play lets all machines work at the same time. Each has its own client.
func play(ctx context.Context, store driver.Store, newShop func(*dibs.Client, *database) Shop) (result, error) {
	data := newDatabase()
	var group sync.WaitGroup
	counts := make([]int, machines)
	failures := make([]error, machines)
	for i := range machines {
		group.Go(func() {
			locks := dibs.New(store)
			defer locks.Close()
			counts[i], failures[i] = visit(ctx, newShop(locks, data))
		})
	}
	group.Wait()
	var r result
	for _, n := range counts {
		r.refused += n
	}
	for i := range orders {
		r.charges += data.chargesOf(fmt.Sprint(i))
	}
	r.balance = data.balance("7")
	return r, errors.Join(failures...)
}

// visit is a machine's work. It returns how many calls were refused because they held no lock.
func visit(ctx context.Context, shop Shop) (refused int, err error) {
	for i := range max(orders, deposits) {
		var failures []error
		if i < orders {
			failures = append(failures, shop.Pay(ctx, fmt.Sprint(i)))
		}
		if i < deposits {
			_, err := shop.Deposit(ctx, "7", 1)
			failures = append(failures, err)
		}
		for _, err := range failures {
			switch {
			case err == nil, errors.Is(err, errPaid):
			case errors.Is(err, dibs.ErrInvalid): // from Client.Holds
				refused++
			default:
				return refused, err
			}
		}
	}
	return refused, nil
}
