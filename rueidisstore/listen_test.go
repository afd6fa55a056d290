package rueidisstore_test

import (
	"testing"
	"time"

	"github.com/dibslock/dibs/internal/drill"
	"github.com/dibslock/dibs/redisstore/redisconn"
	"github.com/dibslock/dibs/rueidisstore"
	"github.com/redis/rueidis"
)

func listeners(adjust func(*rueidis.ClientOption)) drill.ListenOpener {
	open := func(t testing.TB, addrs []string, more func(*rueidis.ClientOption)) redisconn.Listener {
		return rueidisstore.NewListener(dial(t, "", adjust, func(o *rueidis.ClientOption) { o.InitAddress = addrs }, more))
	}
	none := func(*rueidis.ClientOption) {}
	return drill.ListenOpener{
		Single: func(t testing.TB, addr string) redisconn.Listener {
			return open(t, []string{addr}, func(o *rueidis.ClientOption) { o.ForceSingleClient = true })
		},
		Sentinel: func(t testing.TB, addrs []string, master string) redisconn.Listener {
			return open(t, addrs, func(o *rueidis.ClientOption) {
				o.Sentinel.MasterSet, o.Sentinel.TopologyRefreshInterval = master, 100*time.Millisecond
			})
		},
		Cluster: func(t testing.TB, addrs []string) redisconn.Listener { return open(t, addrs, none) },
	}
}

var inRESP3 = listeners(func(*rueidis.ClientOption) {})

func TestListen(t *testing.T) { inRESP3.Listen(t) }

func TestListenInRESP2(t *testing.T) {
	listeners(func(o *rueidis.ClientOption) { o.AlwaysRESP2, o.DisableCache = true, true }).Listen(t)
}

func TestListenSentinel(t *testing.T) {
	t.Parallel()
	inRESP3.ListenSentinel(t)
}

func TestListenCluster(t *testing.T) {
	t.Parallel()
	inRESP3.ListenCluster(t)
}
