package listen

import "context"

// Await returns the result of a function that may return long after ctx has ended. It
// returns when ctx ends. Then discard gets a late result, unless discard is nil.
func Await[T any](ctx context.Context, do func() (T, error), discard func(T)) (T, error) {
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		value, err := do()
		done <- result{value, err}
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
		go func() {
			if r := <-done; r.err == nil && discard != nil {
				discard(r.value)
			}
		}()
		var none T
		return none, context.Cause(ctx)
	}
}
