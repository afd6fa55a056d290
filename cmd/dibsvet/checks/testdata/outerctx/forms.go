package outerctx

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"time"

	"github.com/dibslock/dibs"
)

// The forms in which programs use a second context.

type logger struct{}

func (*logger) InfoContext(ctx context.Context, text string, args ...any) {}
func (*logger) Ctx(ctx context.Context) *logger                           { return nil }
func (*logger) Println(args ...any)                                       {}

type counter struct{}

func (counter) Add(ctx context.Context, n int64)        {}
func (counter) Record(ctx context.Context, n float64)   {}
func start(ctx context.Context) (context.Context, span) { return ctx, span{} }

type span struct{}

func (span) End() {}

func userID(ctx context.Context) (string, bool)                   { return "", ctx == nil }
func merge(a, b context.Context) (context.Context, func())        { return a, func() { _ = b } }
func rollback(ctx context.Context, why ...any) error              { return ctx.Err() }
func undoAll(ctx context.Context) error                           { return ctx.Err() }
func transaction(ctx context.Context, f func() error) error       { return f() }
func retryFor[T any](ctx context.Context, v T) (T, error)         { return v, ctx.Err() }
func withValues(values, deadline context.Context) context.Context { return deadline }

type group struct{ sync.WaitGroup }

func (g *group) Go(f func() error) { _ = f() }

type tx struct{}

func (tx) Rollback(ctx context.Context) error { return ctx.Err() }
func (tx) Commit(ctx context.Context) error   { return ctx.Err() }

func loggers(ctx context.Context, locks *dibs.Client, l *logger, c counter) error {
	return locks.Mutex("a").Do(ctx, func(inner context.Context) error {
		l.InfoContext(ctx, "begins")
		l.Ctx(ctx).Println("begins")
		c.Add(ctx, 1)
		c.Record(ctx, 0.5)
		if id, ok := userID(ctx); ok {
			log.Println(id)
		}
		return save(inner)
	})
}

func rollbackAfterError(ctx context.Context, locks *dibs.Client) error {
	return locks.Mutex("a").Do(ctx, func(inner context.Context) error {
		if err := save(inner); err != nil {
			return errors.Join(err, save(ctx, "failed"))
		}
		return nil
	})
}

func elseBranch(ctx context.Context, locks *dibs.Client) error {
	return locks.Mutex("a").Do(ctx, func(inner context.Context) error {
		err := save(inner)
		if err == nil {
			return nil
		} else {
			return save(ctx, "failed")
		}
	})
}

func lostVariable(ctx context.Context, locks *dibs.Client) error {
	return locks.Mutex("a").Do(ctx, func(inner context.Context) error {
		err := save(inner)
		lost := errors.Is(context.Cause(inner), dibs.ErrLost)
		if lost {
			return save(ctx, "lost")
		}
		return err
	})
}

func lostSwitch(ctx context.Context, locks *dibs.Client) error {
	return locks.Mutex("a").Do(ctx, func(inner context.Context) error {
		err := save(inner)
		switch {
		case inner.Err() != nil:
			return save(ctx, "lost")
		case errors.Is(err, os.ErrNotExist):
			return save(ctx, "absent")
		}
		return err
	})
}

func lostTypeSwitch(ctx context.Context, locks *dibs.Client) error {
	return locks.Mutex("a").Do(ctx, func(inner context.Context) error {
		switch err := save(inner).(type) {
		case nil:
			return nil
		default:
			return errors.Join(err, save(ctx, "failed"))
		}
	})
}

func waited(ctx context.Context, locks *dibs.Client) error {
	return locks.Election("a").Run(ctx, func(term context.Context) error {
		go save(term)
		<-term.Done()
		return save(ctx, "over")
	})
}

func loopEnds(ctx context.Context, locks *dibs.Client, next <-chan int) error {
	return locks.Election("a").Run(ctx, func(term context.Context) error {
		for term.Err() == nil {
			if err := save(term, <-next); err != nil {
				break
			}
		}
		return save(ctx, "over")
	})
}

func loopOfSelect(ctx context.Context, locks *dibs.Client, next <-chan int) error {
	return locks.Election("a").Run(ctx, func(term context.Context) error {
	loop:
		for {
			select {
			case n := <-next:
				if err := save(term, n); err != nil {
					return err
				}
			case <-term.Done():
				break loop
			}
		}
		return save(ctx, "over")
	})
}

func byName(ctx context.Context, locks *dibs.Client, t tx) error {
	return locks.Mutex("a").Do(ctx, func(inner context.Context) error {
		err := save(inner)
		return errors.Join(err, rollback(ctx, "always"), undoAll(ctx), t.Rollback(ctx))
	})
}

func deferredClosure(ctx context.Context, locks *dibs.Client) error {
	return locks.Mutex("a").Do(ctx, func(inner context.Context) (err error) {
		finish := func() { err = errors.Join(err, save(ctx, "finished")) }
		defer finish()
		return save(inner)
	})
}

func merged(ctx context.Context, locks *dibs.Client, shutdown context.Context) error {
	return locks.Mutex("a").Do(ctx, func(c context.Context) error {
		both, cancel := merge(c, shutdown)
		defer cancel()
		return save(withValues(ctx, both))
	})
}

func keptClosure(ctx context.Context, locks *dibs.Client, later chan<- func() error) error {
	return locks.Mutex("a").Do(ctx, func(inner context.Context) error {
		after := func() error { return save(ctx, "later") }
		later <- after
		time.AfterFunc(time.Second, func() { _ = save(ctx, "later still") })
		return save(inner)
	})
}

func inStruct(ctx context.Context, locks *dibs.Client, s *http.Server) error {
	return locks.Mutex("a").Do(ctx, func(inner context.Context) error {
		jobs := []struct{ run func() error }{{run: func() error { return save(ctx) }}}
		s.RegisterOnShutdown(func() { _ = jobs[0].run() })
		return save(inner)
	})
}

func outlivesBoth(ctx context.Context, locks *dibs.Client) error {
	audit, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	return locks.Mutex("a").Do(ctx, func(inner context.Context) error {
		return errors.Join(save(inner), save(audit))
	})
}

func groupInside(ctx context.Context, locks *dibs.Client) error {
	return locks.Mutex("a").Do(ctx, func(inner context.Context) error {
		var g group
		work, cancel := context.WithCancel(inner)
		defer cancel()
		for n := range 3 {
			g.Go(func() error { return save(work, n) })
		}
		return inner.Err()
	})
}

func renamed(ctx context.Context, locks *dibs.Client) error {
	return locks.Mutex("a").Do(ctx, func(inner context.Context) error {
		ctx := inner
		return save(ctx)
	})
}

func tableOfSteps(ctx context.Context, locks *dibs.Client) error {
	return locks.Mutex("a").Do(ctx, func(inner context.Context) error {
		for _, step := range []struct {
			name string
			run  func(context.Context) error
		}{{"one", undoAll}, {"two", undoAll}} {
			if err := step.run(inner); err != nil {
				return fmt.Errorf("%s: %w", step.name, err)
			}
		}
		return nil
	})
}

// The mistakes that are close to them.

func anotherName(ctx context.Context, locks *dibs.Client) error {
	return locks.Mutex("a").Do(ctx, func(inner context.Context) error {
		mine := ctx
		return save(mine) // want `mine is from outside`
	})
}

func anotherNameOfTwo(r *request, locks *dibs.Client) error {
	return locks.Mutex("a").Do(r.Context(), func(inner context.Context) error {
		var first context.Context = r.Context()
		second := first
		return save(second) // want `second is from outside`
	})
}

// There is no fix: work would be unused.
func onlyUse(ctx context.Context, locks *dibs.Client) error {
	work, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return locks.Mutex("a").Do(ctx, func(inner context.Context) error {
		return save(work) // want `work is from outside`
	})
}

func usedTwice(ctx context.Context, locks *dibs.Client) error {
	work, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return locks.Mutex("a").Do(work, func(inner context.Context) error {
		return save(work) // want `work is from outside`
	})
}

func signals(locks *dibs.Client) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	return locks.Election("a").Run(ctx, func(term context.Context) error {
		return save(ctx) // want `ctx is from outside`
	})
}

// There is no fix: with a name, the parameter would also replace ctx in the condition.
func blankWithCondition(ctx context.Context, locks *dibs.Client) error {
	return locks.Mutex("a").Do(ctx, func(_ context.Context) error {
		if ctx.Err() == nil {
			return save(ctx) // want `ctx is from outside`
		}
		return nil
	})
}

// There is no fix: c has other methods.
func blankWithFramework(c *webContext, locks *dibs.Client) error {
	return locks.Mutex("a").Do(c, func(context.Context) error {
		return save(c) // want `c is from outside`
	})
}

func inErrorBranchOfOuter(ctx context.Context, locks *dibs.Client) error {
	if err := save(ctx); err != nil {
		return locks.Mutex("a").Do(ctx, func(inner context.Context) error {
			return save(ctx) // want `ctx is from outside`
		})
	}
	return nil
}

func inGroup(ctx context.Context, locks *dibs.Client) error {
	return locks.Mutex("a").Do(ctx, func(inner context.Context) error {
		var g group
		for n := range 3 {
			g.Go(func() error { return save(ctx, n) }) // want `ctx is from outside`
		}
		return inner.Err()
	})
}

func inTransaction(ctx context.Context, locks *dibs.Client, t tx) error {
	return locks.Mutex("a").Do(ctx, func(inner context.Context) error {
		return transaction(inner, func() error {
			if err := save(inner); err != nil {
				return t.Rollback(ctx)
			}
			return t.Commit(ctx) // want `ctx is from outside`
		})
	})
}

func inRequest(ctx context.Context, locks *dibs.Client) error {
	return locks.Mutex("a").Do(ctx, func(inner context.Context) error {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "/", nil) // want `ctx is from outside`
		if err != nil {
			return err
		}
		_, err = http.DefaultClient.Do(r)
		return err
	})
}

func inSpan(ctx context.Context, locks *dibs.Client) error {
	return locks.Mutex("a").Do(ctx, func(inner context.Context) error {
		traced, s := start(ctx) // want `ctx is from outside`
		defer s.End()
		return save(traced)
	})
}

func genericFunction(ctx context.Context, locks *dibs.Client) error {
	return locks.Mutex("a").Do(ctx, func(inner context.Context) error {
		_, err := retryFor(ctx, 3) // want `ctx is from outside`
		return err
	})
}

func selectReturns(ctx context.Context, locks *dibs.Client, next <-chan int) error {
	return locks.Mutex("a").Do(ctx, func(inner context.Context) error {
		select {
		case <-inner.Done():
			return inner.Err()
		case <-next:
		}
		return save(ctx) // want `ctx is from outside`
	})
}

func afterCheck(ctx context.Context, locks *dibs.Client) error {
	return locks.Mutex("a").Do(ctx, func(inner context.Context) error {
		if err := save(inner); err != nil {
			return err
		}
		return save(ctx) // want `ctx is from outside`
	})
}

func inRangeLoop(ctx context.Context, locks *dibs.Client, names []string) error {
	return locks.Mutex("a").Do(ctx, func(inner context.Context) error {
	next:
		for _, name := range names {
			if _, err := load(ctx, name); err != nil { // want `ctx is from outside`
				continue next
			}
		}
		return nil
	})
}

func calledClosure(ctx context.Context, locks *dibs.Client) error {
	return locks.Mutex("a").Do(ctx, func(inner context.Context) error {
		step := func(name string) error {
			_, err := load(ctx, name) // want `ctx is from outside`
			return err
		}
		return errors.Join(step("a"), step("b"))
	})
}

func (s *service) method(ctx context.Context) error {
	return s.locks.Mutex("a").Do(ctx, func(inner context.Context) error {
		return s.save(ctx) // want `ctx is from outside`
	})
}

func (s *service) save(ctx context.Context) error { return ctx.Err() }
