package drill

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
)

// WantInvalid checks each call to an unusable store: it must return ErrInvalid at once.
func WantInvalid(t *testing.T, s driver.Store, want string) {
	t.Helper()
	start := time.Now()
	locks := dibs.New(s)
	calls := map[string]error{}
	_, calls["Lock"] = locks.Mutex("job").Lock(t.Context())
	_, calls["TryLock"] = locks.RWMutex("job").Reader().TryLock(t.Context())
	_, calls["Acquire"] = locks.Semaphore("job", 2).Permits(1).Lock(t.Context())
	_, calls["Inspect"] = locks.Inspect(t.Context(), "job")
	_, calls["List"] = driver.Complete(s).List(t.Context(), "*")
	calls["Extend"] = s.Extend(t.Context(), []driver.ExtendRequest{{Name: "job", Token: "a:1", Client: "a", TTL: time.Second, Weight: 1, Limit: 1}})[0]
	_, calls["Release"] = s.Release(t.Context(), driver.ReleaseRequest{Name: "job", Token: "a:1"})
	calls["Close"] = locks.Close()
	for call, err := range calls {
		if call == "Close" {
			if err != nil {
				t.Errorf("Close: %v", err)
			}
			continue
		}
		if !errors.Is(err, dibs.ErrInvalid) || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "dibs: ") {
			t.Errorf("%s: got %v, want ErrInvalid of dibs with %q", call, err, want)
		}
	}
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("the errors took %v", took)
	}
}
