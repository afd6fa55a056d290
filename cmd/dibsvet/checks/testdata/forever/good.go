package forever

import (
	"context"
	"os"
	"os/signal"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/memstore"
)

func waits() error {
	return locks.Mutex("a").Do(context.Background(), nothing, dibs.Wait(time.Second))
}

func waitsByVariable() error {
	limit := dibs.Wait(time.Second)
	return locks.Mutex("a").Do(context.Background(), nothing, limit)
}

func attempts() error {
	m := locks.Mutex("a", dibs.Attempts(3, time.Second))
	return m.Do(context.Background(), nothing)
}

func clientWaits() error {
	c := dibs.New(memstore.New(), dibs.Wait(time.Second))
	return c.Mutex("a").Do(context.Background(), nothing)
}

func parameter(ctx context.Context) error { return locks.Mutex("a").Do(ctx, nothing) }

func deadline() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	return locks.Mutex("a").Do(ctx, nothing)
}

func signals() error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	return locks.Mutex("a").Do(ctx, nothing)
}

func either(limited bool) error {
	ctx := context.Background()
	if limited {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Second)
		defer cancel()
	}
	return locks.Mutex("a").Do(ctx, nothing)
}

func variadic(options ...dibs.Option) error {
	return locks.Mutex("a").Do(context.Background(), nothing, options...)
}

func unknownOption(o dibs.Option) error {
	return locks.Mutex("a").Do(context.Background(), nothing, o)
}

func optionFunction() error {
	return locks.Mutex("a").Do(context.Background(), nothing, limit())
}

func limit() dibs.Option { return dibs.Wait(time.Second) }

func clientFromElsewhere(c *dibs.Client) error {
	return c.Mutex("a").Do(context.Background(), nothing)
}

func lockFromElsewhere(lock dibs.Doer) error { return lock.Do(context.Background(), nothing) }

func parsed(text string) error {
	options, err := dibs.ParseOptions(text)
	if err != nil {
		return err
	}
	return dibs.New(memstore.New(), options...).Mutex("a").Do(context.Background(), nothing)
}

// These do not wait.
func tries() error {
	_, err := locks.Mutex("a").TryLock(context.Background())
	if err != nil {
		return err
	}
	_, err = locks.Once("a", time.Hour).Do(context.Background(), nothing)
	return err
}

// A candidate waits as long as it takes.
func campaigns() error { return locks.Election("a").Run(context.Background(), nothing) }

// Another package may give it other options.
type Service struct{ Locks *dibs.Client }

var Default = &Service{Locks: dibs.New(memstore.New())}

func (s *Service) run() error { return s.Locks.Mutex("a").Do(context.Background(), nothing) }

// It may have one of two values.
func twoClients(first bool) error {
	c := dibs.New(memstore.New())
	if first {
		c = dibs.New(memstore.New(), dibs.Wait(time.Second))
	}
	return c.Mutex("a").Do(context.Background(), nothing)
}

func slice() error {
	options := []dibs.Option{dibs.Wait(time.Second)}
	return locks.Mutex("a").Do(context.Background(), nothing, options...)
}
