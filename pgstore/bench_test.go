package pgstore_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/internal/test/sqldrill"
	"github.com/jackc/pgx/v5/pgxpool"
)

// BenchmarkUncontended compares a lock and unlock with the bare statements.
func BenchmarkUncontended(b *testing.B) {
	s := sharedServer(b)
	pool, err := pgxpool.New(b.Context(), s.URL())
	if err != nil {
		b.Fatal(err)
	}
	defer pool.Close()
	if _, err := pool.Exec(b.Context(), "CREATE TABLE IF NOT EXISTS bare (name text PRIMARY KEY, token text, expires timestamptz)"); err != nil {
		b.Fatal(err)
	}
	locks := dibs.New(newStore(b), dibs.TTL(time.Minute))
	defer locks.Close()
	for _, goroutines := range []int{1, 16} {
		var n atomic.Int64
		run := func(b *testing.B, pair func(ctx context.Context, name string) error) {
			b.SetParallelism(max(goroutines/2, 1))
			b.RunParallel(func(p *testing.PB) {
				name := fmt.Sprint("n", n.Add(1))
				for p.Next() {
					if err := pair(context.Background(), name); err != nil {
						b.Error(err)
						return
					}
				}
			})
		}
		b.Run(fmt.Sprint("baseline/", goroutines), func(b *testing.B) {
			run(b, func(ctx context.Context, name string) error {
				if _, err := pool.Exec(ctx, "INSERT INTO bare VALUES ($1, $2, now() + interval '1 minute') ON CONFLICT (name) DO UPDATE SET token = excluded.token, expires = excluded.expires WHERE bare.expires < now()", name, "token"); err != nil {
					return err
				}
				_, err := pool.Exec(ctx, "DELETE FROM bare WHERE name = $1 AND token = $2", name, "token")
				return err
			})
		})
		b.Run(fmt.Sprint("dibs/", goroutines), func(b *testing.B) {
			run(b, func(ctx context.Context, name string) error {
				l, err := locks.Mutex(name).Lock(ctx)
				if err != nil {
					return err
				}
				return l.Unlock()
			})
		})
	}
}

func BenchmarkInspectAll(b *testing.B) { sqldrill.BenchmarkInspectAll(b, newStore(b)) }
