package mysqlstore

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

var errNoServer = errors.New("no server")

// noServer is a connector that fails at once.
type noServer struct{}

func (noServer) Connect(context.Context) (sqldriver.Conn, error) { return nil, errNoServer }
func (noServer) Driver() sqldriver.Driver                        { return nil }

// A request that gets its turn too late must not be sent, and the next must get its turn at once.
func TestLateRequestLeavesItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := sql.OpenDB(noServer{})
		defer db.Close()
		s := New(db)
		for range maxAtOnce {
			s.turns <- struct{}{}
		}
		ended := func(limit time.Duration) (result chan error) {
			result = make(chan error, 1)
			go func() {
				ctx, cancel := context.WithTimeout(t.Context(), limit)
				defer cancel()
				result <- s.use(ctx, func(*sql.Conn) error { return nil })
			}()
			synctest.Wait()
			return result
		}
		begin := time.Now()
		late := ended(time.Second)
		next := ended(time.Minute)
		time.Sleep(600 * time.Millisecond)
		<-s.turns
		if err := <-next; !errors.Is(err, errNoServer) || time.Since(begin) != 600*time.Millisecond {
			t.Errorf("the next request: %v after %v; want an attempt to connect after 600ms", err, time.Since(begin))
		}
		if err := <-late; !errors.Is(err, context.DeadlineExceeded) || time.Since(begin) != time.Second {
			t.Errorf("the late request: %v after %v; want none sent until 1s", err, time.Since(begin))
		}
	})
}
