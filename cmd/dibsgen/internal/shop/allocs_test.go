package shop

import (
	"context"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/memstore"
)

// byHand holds the same locks as LockShop, as a person would write it.
type byHand struct {
	locks *dibs.Client
	next  Shop
}

func (b *byHand) pay(ctx context.Context, o Order) (Receipt, error) {
	return dibs.Call(ctx, b.locks.Mutex("order:"+o.ID), func(ctx context.Context) (Receipt, error) {
		return b.next.Pay(ctx, o)
	}, dibs.Wait(3*time.Second))
}

func (b *byHand) transfer(ctx context.Context, from, to string, cents int64) error {
	return b.locks.All([]string{"account:" + from, "account:" + to}).Do(ctx, func(ctx context.Context) error {
		return b.next.Transfer(ctx, from, to, cents)
	}, dibs.Wait(3*time.Second))
}

func (b *byHand) publish(ctx context.Context, page int, text string) error {
	return b.locks.RWMutex("catalogue").Writer().Do(ctx, func(ctx context.Context) error {
		return b.next.Publish(ctx, page, text)
	})
}

func (b *byHand) show(ctx context.Context, page int) (string, error) {
	return dibs.Call(ctx, b.locks.RWMutex("catalogue").Reader(), func(ctx context.Context) (string, error) {
		return b.next.Show(ctx, page)
	})
}

func (b *byHand) upload(ctx context.Context, file string) error {
	return b.locks.Semaphore("partner", 4).Permits(1).Do(ctx, func(ctx context.Context) error {
		return b.next.Upload(ctx, file)
	}, dibs.Wait(time.Minute))
}

func (b *byHand) stock(ctx context.Context, item string) (have, reserved int, err error) {
	err = b.locks.Mutex("item:"+item).Do(ctx, func(ctx context.Context) (err error) {
		have, reserved, err = b.next.Stock(ctx, item)
		return err
	}, dibs.Attempts(3, 100*time.Millisecond), dibs.TTL(20*time.Second), dibs.Label("stock"))
	return have, reserved, err
}

// calls contains the same calls to a decorator and to handwritten code.
func calls(ctx context.Context, s Shop, b *byHand) map[string][2]func() error {
	return map[string][2]func() error{
		"Call":           {func() error { _, err := s.Pay(ctx, Order{"7"}); return err }, func() error { _, err := b.pay(ctx, Order{"7"}); return err }},
		"All":            {func() error { return s.Transfer(ctx, "a", "b", 1) }, func() error { return b.transfer(ctx, "a", "b", 1) }},
		"Writer":         {func() error { return s.Publish(ctx, 1, "") }, func() error { return b.publish(ctx, 1, "") }},
		"Reader":         {func() error { _, err := s.Show(ctx, 1); return err }, func() error { _, err := b.show(ctx, 1); return err }},
		"Semaphore":      {func() error { return s.Upload(ctx, "f") }, func() error { return b.upload(ctx, "f") }},
		"SeveralResults": {func() error { _, _, err := s.Stock(ctx, "pen"); return err }, func() error { _, _, err := b.stock(ctx, "pen"); return err }},
	}
}

// A decorator costs at most three allocations more than the same code by hand.
func TestAllocations(t *testing.T) {
	const more = 3
	for name, options := range map[string][]dibs.Option{"without options": nil, "with options": {dibs.TTL(time.Minute), dibs.Label("x")}} {
		locks := dibs.New(memstore.New())
		t.Cleanup(func() { locks.Close() })
		for method, pair := range calls(t.Context(), LockShop(locks, fake{}, options...), &byHand{locks, fake{}}) {
			var have [2]float64
			for i, call := range pair {
				have[i] = testing.AllocsPerRun(200, func() {
					if err := call(); err != nil {
						t.Error(err)
					}
				})
			}
			t.Logf("%s, %s: %v allocations, %v by hand", method, name, have[0], have[1])
			if have[0] > have[1]+more {
				t.Errorf("%s, %s: %v allocations, more than %v by hand and %d", method, name, have[0], have[1], more)
			}
		}
	}
}

func BenchmarkCalls(b *testing.B) {
	locks := dibs.New(memstore.New())
	defer locks.Close()
	for method, pair := range calls(b.Context(), LockShop(locks, fake{}), &byHand{locks, fake{}}) {
		for i, by := range []string{"decorator", "hand"} {
			b.Run(method+"/"+by, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if err := pair[i](); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
