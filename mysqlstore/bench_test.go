package mysqlstore_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/internal/test/sqldrill"
)

// BenchmarkUncontended compares a lock and unlock with the bare statements.
func BenchmarkUncontended(b *testing.B) {
	db := newDB(b, sharedServer(b).DSN("mysql"))
	if _, err := db.ExecContext(b.Context(), "CREATE TABLE IF NOT EXISTS bare (name VARBINARY(512) PRIMARY KEY, token VARBINARY(512), expires BIGINT)"); err != nil {
		b.Fatal(err)
	}
	locks := dibs.New(newStoreOn(b, db), dibs.TTL(time.Minute))
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
				if _, err := db.ExecContext(ctx, "INSERT INTO bare VALUES (?, ?, 1) ON DUPLICATE KEY UPDATE expires = expires + 1", name, "token"); err != nil {
					return err
				}
				_, err := db.ExecContext(ctx, "DELETE FROM bare WHERE name = ? AND token = ?", name, "token")
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
