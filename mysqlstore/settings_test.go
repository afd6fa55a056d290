package mysqlstore_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/dibslock/dibs"
)

// A connection may have other settings. Leases are safe all the same.
func TestSettingsOfTheConnection(t *testing.T) {
	t.Parallel()
	for name, setting := range map[string]string{
		"serializable": "tx_isolation='SERIALIZABLE'",
		"uncommitted":  "tx_isolation='READ-UNCOMMITTED'",
		"time zone":    "time_zone='%2B05:30'",
		"latin1":       "charset=latin1",
		"ansi":         "sql_mode='ANSI,NO_BACKSLASH_ESCAPES'",
		"found rows":   "clientFoundRows=true",
		"parsed time":  "parseTime=true",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStoreOn(t, newDB(t, sharedServer(t).DSN("mysql")+"&"+setting))
			locks := dibs.New(s, dibs.Timeout(10*time.Second))
			defer locks.Close()
			inside, most := 0, 0
			var group sync.WaitGroup
			for range 4 {
				group.Go(func() {
					for range 4 {
						l, err := locks.Mutex("zażółć \x00 \\ ' \" 锁").Lock(t.Context())
						if err != nil {
							t.Error(err)
							return
						}
						inside++
						most = max(most, inside)
						inside--
						if err := errors.Join(l.Extend(t.Context(), time.Hour), l.Unlock()); err != nil {
							t.Error(err)
						}
					}
				})
			}
			group.Wait()
			if most != 1 {
				t.Errorf("%d concurrent holders", most)
			}
		})
	}
}
