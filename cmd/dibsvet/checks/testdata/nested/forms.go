package nested

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/dibslock/dibs"
)

// The forms in which programs acquire two locks.

type account struct {
	ID     string
	Parent string
}

func load(ctx context.Context, into *account) error       { return ctx.Err() }
func parentOf(ctx context.Context, id string) string      { return id }
func read(ctx context.Context, id string) (string, error) { return id, ctx.Err() }
func lockName(id string) string                           { return "account:" + id }

func lockInLock(ctx context.Context, locks *dibs.Client, from, to string) error {
	a, err := locks.Mutex(from).Lock(ctx)
	if err != nil {
		return err
	}
	defer a.Unlock()
	b, err := locks.Mutex(to).Lock(ctx) // want `a lock inside another one`
	if err != nil {
		return err
	}
	defer b.Unlock()
	return move(ctx)
}

func lockInLockWithWork(ctx context.Context, locks *dibs.Client) (err error) {
	a, err := locks.Mutex("a").Lock(ctx)
	if err != nil {
		return fmt.Errorf("a: %w", err)
	}
	defer func() { err = errors.Join(err, a.Unlock()) }()
	_ = move(a.Context())
	b, err := locks.Mutex("b").Lock(a.Context()) // want `a lock inside another one`
	if err != nil {
		return fmt.Errorf("b: %w", err)
	}
	return errors.Join(move(b.Context()), b.Unlock())
}

func doInLock(ctx context.Context, locks *dibs.Client, x, y string) error {
	a, err := locks.RWMutex(x).Lock(ctx)
	if err != nil {
		return err
	}
	defer a.Unlock()
	return locks.RWMutex(y).Do(a.Context(), move) // want `a lock inside another one`
}

func lockInLockInLoop(ctx context.Context, locks *dibs.Client, names []string) error {
	for _, name := range names {
		a, err := locks.Mutex("a").Lock(ctx)
		if err != nil {
			return err
		}
		b, err := locks.Mutex(name).Lock(ctx) // want `a lock inside another one`
		if err != nil {
			return errors.Join(err, a.Unlock())
		}
		if err := errors.Join(b.Unlock(), a.Unlock()); err != nil {
			return err
		}
	}
	return nil
}

func callInCall(ctx context.Context, locks *dibs.Client, x, y string) (int, error) {
	return dibs.Call(ctx, locks.Mutex(x), func(ctx context.Context) (int, error) {
		return dibs.Call(ctx, locks.Mutex(y), func(ctx context.Context) (int, error) { // want `a lock inside another one`
			return 1, ctx.Err()
		})
	})
}

func callInDo(ctx context.Context, locks *dibs.Client) (n int, err error) {
	err = locks.Mutex("a").Do(ctx, func(ctx context.Context) (err error) {
		n, err = dibs.Call(ctx, locks.All("b", "c"), func(ctx context.Context) (int, error) { return 1, nil }) // want `a lock inside another one`
		return err
	})
	return n, err
}

func callInLock(ctx context.Context, locks *dibs.Client) (int, error) {
	a, err := locks.Mutex("a").Lock(ctx)
	if err != nil {
		return 0, err
	}
	defer a.Unlock()
	return dibs.Call(ctx, locks.Mutex("b"), func(context.Context) (int, error) { return 1, nil }) // want `a lock inside another one`
}

func formatted(ctx context.Context, locks *dibs.Client, from, to int) error {
	return locks.Mutex(fmt.Sprintf("account:%d", from)).Do(ctx, func(ctx context.Context) error {
		return locks.Mutex("account:"+strconv.Itoa(to)).Do(ctx, move) // want `a lock inside another one`
	})
}

func converted(ctx context.Context, locks *dibs.Client, from, to []byte) error {
	return locks.Mutex(string(from)).Do(ctx, func(ctx context.Context) error {
		return locks.Mutex(strings.ToLower(string(to))).Do(ctx, move) // want `a lock inside another one`
	})
}

func fields(ctx context.Context, locks *dibs.Client, from, to account) error {
	return locks.Mutex(from.ID).Do(ctx, func(ctx context.Context) error {
		return locks.Mutex(to.ID).Do(ctx, move) // want `a lock inside another one`
	})
}

func namesBefore(ctx context.Context, locks *dibs.Client, from, to string) error {
	x, y := "account:"+from, "account:"+to
	return locks.Mutex(x).Do(ctx, func(ctx context.Context) error {
		return locks.Mutex(y).Do(ctx, move) // want `a lock inside another one`
	})
}

func readBefore(ctx context.Context, locks *dibs.Client, id string) error {
	parent, err := read(ctx, id)
	if err != nil {
		return err
	}
	return locks.Mutex(id).Do(ctx, func(ctx context.Context) error {
		return locks.Mutex(parent).Do(ctx, move) // want `a lock inside another one`
	})
}

// The lock is made before, so its name is known.
func madeBefore(ctx context.Context, locks *dibs.Client, id string) error {
	a, b := locks.Mutex(id), locks.Mutex(parentOf(ctx, id))
	return a.Do(ctx, func(ctx context.Context) error {
		return b.Do(ctx, move) // want `a lock inside another one`
	})
}

func generic[T fmt.Stringer](ctx context.Context, locks *dibs.Client, from, to string, value T) error {
	return locks.Mutex(from).Do(ctx, func(ctx context.Context) error {
		fmt.Println(value)
		return locks.Mutex(to).Do(ctx, move) // want `a lock inside another one`
	})
}

func inLoopAround(ctx context.Context, locks *dibs.Client, targets []string) error {
	for _, to := range targets {
		err := locks.Mutex("source").Do(ctx, func(ctx context.Context) error {
			return locks.Mutex(to).Do(ctx, move) // want `a lock inside another one`
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (b *bank) closeBoth(ctx context.Context, from, to string) error {
	lease, err := b.locks.Mutex(from).Lock(ctx)
	if err != nil {
		return err
	}
	defer lease.Unlock()
	if err := b.locks.Mutex(to).Do(ctx, move); err != nil { // want `a lock inside another one`
		return err
	}
	return nil
}

// The names are known only under the outer lock.

func assignedInside(ctx context.Context, locks *dibs.Client, id string) error {
	var parent string
	return locks.Mutex(id).Do(ctx, func(ctx context.Context) (err error) {
		if parent, err = read(ctx, id); err != nil {
			return err
		}
		return nil
	}, dibs.Label(parent))
}

func assignedInsideAndUsed(ctx context.Context, locks *dibs.Client, id string) error {
	var parent string
	return locks.Mutex(id).Do(ctx, func(ctx context.Context) error {
		parent = parentOf(ctx, id)
		return locks.Mutex(parent).Do(ctx, move)
	})
}

func filledInside(ctx context.Context, locks *dibs.Client, id string) error {
	var a account
	return locks.Mutex(id).Do(ctx, func(ctx context.Context) error {
		_ = load(ctx, &a)
		return locks.Mutex(a.Parent).Do(ctx, move)
	})
}

func filledThroughPointer(ctx context.Context, locks *dibs.Client, a *account) error {
	return locks.Mutex(a.ID).Do(ctx, func(ctx context.Context) error {
		_ = load(ctx, a)
		return locks.Mutex(a.Parent).Do(ctx, move)
	})
}

func scanned(ctx context.Context, locks *dibs.Client, id string, scan func(...any) error) error {
	var parent string
	return locks.Mutex(id).Do(ctx, func(ctx context.Context) error {
		_ = scan(&parent)
		return locks.Mutex("account:"+parent).Do(ctx, move)
	})
}

func calledInside(ctx context.Context, locks *dibs.Client, id string) error {
	return locks.Mutex(id).Do(ctx, func(ctx context.Context) error {
		return locks.Mutex(lockName(parentOf(ctx, id))).Do(ctx, move)
	})
}

func calledInCall(ctx context.Context, locks *dibs.Client, id string) (int, error) {
	return dibs.Call(ctx, locks.Mutex(id), func(ctx context.Context) (int, error) {
		return dibs.Call(ctx, locks.Mutex(parentOf(ctx, id)), func(context.Context) (int, error) { return 1, nil })
	})
}

func elementInside(ctx context.Context, locks *dibs.Client, parents map[string]string, id string) error {
	return locks.Mutex(id).Do(ctx, func(ctx context.Context) error {
		return locks.Mutex(parents[id]).Do(ctx, move)
	})
}

func readUnderLock(ctx context.Context, locks *dibs.Client, id string) error {
	lease, err := locks.Mutex(id).Lock(ctx)
	if err != nil {
		return err
	}
	defer lease.Unlock()
	parent := parentOf(lease.Context(), id)
	return locks.Mutex(parent).Do(ctx, move)
}

func mayReturnUnderLock(ctx context.Context, locks *dibs.Client, id, parent string) error {
	lease, err := locks.Mutex(id).Lock(ctx)
	if err != nil {
		return err
	}
	defer lease.Unlock()
	if err := move(lease.Context()); err != nil {
		return err
	}
	return locks.Mutex(parent).Do(ctx, move)
}

// Both programs acquire them in one order.

func ordered(ctx context.Context, locks *dibs.Client, from, to string) error {
	first, second := from, to
	if second < first {
		first, second = second, first
	}
	return locks.Mutex(first).Do(ctx, func(ctx context.Context) error {
		return locks.Mutex(second).Do(ctx, move)
	})
}

func orderedParameters(ctx context.Context, locks *dibs.Client, from, to string) error {
	if to < from {
		from, to = to, from
	}
	return locks.Mutex(from).Do(ctx, func(ctx context.Context) error {
		return locks.Mutex(to).Do(ctx, move)
	})
}

func orderedByMin(ctx context.Context, locks *dibs.Client, from, to string) error {
	return locks.Mutex(min(from, to)).Do(ctx, func(ctx context.Context) error {
		return locks.Mutex(max(from, to)).Do(ctx, move)
	})
}

func sorted(ctx context.Context, locks *dibs.Client, from, to string) error {
	names := []string{from, to}
	slices.Sort(names)
	return locks.Mutex(names[0]).Do(ctx, func(ctx context.Context) error {
		return locks.Mutex(names[1]).Do(ctx, move)
	})
}

func orderedVariables(ctx context.Context, locks *dibs.Client, from, to string) error {
	first, second := min(from, to), max(from, to)
	return locks.Mutex(first).Do(ctx, func(ctx context.Context) error {
		return locks.Mutex("account:"+second).Do(ctx, move)
	})
}

func orderedInSteps(ctx context.Context, locks *dibs.Client, from, to string) error {
	first, second := min(from, to), max(from, to)
	lease, err := locks.Mutex("account:" + first).Lock(ctx)
	if err != nil {
		return err
	}
	defer lease.Unlock()
	key := "account:" + second
	return locks.Mutex(key).Do(ctx, move)
}

func orderedByFunction(ctx context.Context, locks *dibs.Client, from, to string) error {
	first, second := inOrder(from, to)
	return locks.Mutex(first).Do(ctx, func(ctx context.Context) error {
		return locks.Mutex(second).Do(ctx, move)
	})
}

func inOrder(a, b string) (string, string) { return min(a, b), max(a, b) }

func orderedList(ctx context.Context, locks *dibs.Client, from, to string) error {
	names := []string{from, to}
	slices.Sort(names)
	first, second := names[0], names[1]
	return locks.Mutex(first).Do(ctx, func(ctx context.Context) error {
		return locks.Mutex(second).Do(ctx, move)
	})
}

// A variable alone orders nothing.
func onlyVariables(ctx context.Context, locks *dibs.Client, from, to string) error {
	first, second := "account:"+from, "account:"+to
	return locks.Mutex(first).Do(ctx, func(ctx context.Context) error {
		return locks.Mutex(second).Do(ctx, move) // want `a lock inside another one deadlocks`
	})
}

// The first lease has ended.

func handOver(ctx context.Context, locks *dibs.Client) error {
	a, err := locks.Mutex("a").Lock(ctx)
	if err != nil {
		return err
	}
	if err := a.Unlock(); err != nil {
		return err
	}
	b, err := locks.Mutex("b").Lock(ctx)
	if err != nil {
		return err
	}
	return b.Unlock()
}

func passedOn(ctx context.Context, locks *dibs.Client, finish func(*dibs.Lease)) error {
	a, err := locks.Mutex("a").Lock(ctx)
	if err != nil {
		return err
	}
	finish(a)
	return locks.Mutex("b").Do(ctx, move)
}

func tryFirst(ctx context.Context, locks *dibs.Client) error {
	a, err := locks.Mutex("a").TryLock(ctx)
	if err != nil {
		return err
	}
	defer a.Unlock()
	return locks.Mutex("b").Do(ctx, move)
}

func permitFirst(ctx context.Context, locks *dibs.Client) error {
	a, err := locks.Semaphore("workers", 4).Acquire(ctx, 1)
	if err != nil {
		return err
	}
	defer a.Unlock()
	return locks.Mutex("b").Do(ctx, move)
}

func onlySometimes(ctx context.Context, locks *dibs.Client, both bool) error {
	a, err := locks.Mutex("a").Lock(ctx)
	if err != nil {
		return err
	}
	defer a.Unlock()
	if both {
		return locks.Mutex("b").Do(ctx, move)
	}
	return nil
}

func laterInGoroutine(ctx context.Context, locks *dibs.Client) error {
	a, err := locks.Mutex("a").Lock(ctx)
	if err != nil {
		return err
	}
	defer a.Unlock()
	go func() { _ = locks.Mutex("b").Do(ctx, move) }()
	return nil
}
