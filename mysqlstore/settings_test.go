package mysqlstore_test

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/mysqlstore"
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

// With some settings a store would acquire a lease that it cannot renew. It refuses its first
// request, and names the setting.
func TestRefusedSettings(t *testing.T) {
	t.Parallel()
	for name, value := range map[string]string{
		"autocommit": "0", "sql_safe_updates": "1", "completion_type": "1", "sql_big_selects": "0", "sql_select_limit": "1",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := mysqlstore.New(newDB(t, sharedServer(t).DSN("mysql")+"&"+name+"="+value))
			locks := dibs.New(s)
			defer locks.Close()
			_, err := locks.Mutex("n").TryLock(t.Context())
			var u *driver.UnavailableError
			if !errors.As(err, &u) || !u.Refused || !strings.Contains(err.Error(), name+" is ") {
				t.Errorf("have %v, want a refusal that names %s", err, name)
			}
		})
	}
}
