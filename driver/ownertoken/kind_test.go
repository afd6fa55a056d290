package ownertoken_test

import (
	"testing"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/driver/ownertoken"
)

func token(kind driver.Kind, limit int) string {
	return string(ownertoken.AppendKind([]byte("web-7:211:q3ZkAbCdEfGhIjKl:"), kind, limit)) + "abcdefgh:label-1"
}

func TestKindOf(t *testing.T) {
	for kind, limit := range map[driver.Kind]int{
		driver.KindMutex: 1, driver.KindReader: driver.Unlimited, driver.KindWriter: driver.Unlimited,
		driver.KindSemaphore: 4, driver.KindMulti: 1, driver.KindElection: 1, driver.KindOnce: 1,
	} {
		if k, l := ownertoken.Kind(token(kind, limit)); k != kind || l != limit {
			t.Errorf("%s: KindOf returns %q, %d: want %q, %d", kind, k, l, kind, limit)
		}
	}
	for _, other := range []string{
		"", "mine", "a:1:b:c", "web-7:211:q3Zk:mabc", "web-7:211:q3Zk:x-abc", "web-7:211:q3Zk:m4-abc",
		"web-7:211:q3Zk:s-abc", "web-7:211:q3Zk:s0-abc", "web-7:211:q3Zk:s99999999999-abc", "web-7:211:q3Zk:-abc",
		"web-7:211:q3Zk:abc:m-label", token(driver.KindAttached, 0),
	} {
		if k, l := ownertoken.Kind(other); k != "" || l != 0 {
			t.Errorf("token %q: KindOf returns %q, %d: want nothing", other, k, l)
		}
	}
}

// The token of a reader that was upgraded still says reader.
func TestKindFollowsTheWeight(t *testing.T) {
	const exclusive = 0
	for _, c := range []struct {
		token  driver.Kind
		weight int
		want   driver.Kind
	}{
		{driver.KindReader, 1, driver.KindReader}, {driver.KindReader, exclusive, driver.KindWriter},
		{driver.KindWriter, exclusive, driver.KindWriter}, {driver.KindWriter, 1, driver.KindReader},
		{driver.KindMutex, exclusive, driver.KindMutex}, {driver.KindSemaphore, exclusive, driver.KindSemaphore},
	} {
		h := ownertoken.NewHolder(token(c.token, 3), c.weight)
		if h.Kind != c.want || h.Label != "label-1" || h.Weight != c.weight {
			t.Errorf("%s of weight %d: %+v: want %s", c.token, c.weight, h, c.want)
		}
	}
}
