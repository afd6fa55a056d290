package doctor_test

import (
	"testing"

	"github.com/dibslock/dibs/checkup"
	"github.com/dibslock/dibs/internal/test/redistest"
	"github.com/dibslock/dibs/redisstore"
)

// at returns a store at a proxy's address.
func at(t *testing.T, addr string, options ...redisstore.Option) *redisstore.Store {
	conn := redistest.Dial(addr)
	t.Cleanup(conn.Close)
	return redisstore.New(conn, options...)
}

// proxies are all proxies in the tests, with whether they route by hash tags.
var proxies = map[string]struct {
	byTag bool
	start func(t *testing.T, servers ...*redistest.Server) (addr string)
}{
	"router by tag": {true, func(t *testing.T, servers ...*redistest.Server) string {
		return redistest.NewRouter(t, redistest.ByTag, servers...).Addr()
	}},
	"router by key": {false, func(t *testing.T, servers ...*redistest.Server) string {
		return redistest.NewRouter(t, redistest.ByKey, servers...).Addr()
	}},
	"twemproxy by tag": {true, func(t *testing.T, servers ...*redistest.Server) string {
		return redistest.StartTwemproxy(t, "{}", servers...)
	}},
	"twemproxy by key": {false, func(t *testing.T, servers ...*redistest.Server) string {
		return redistest.StartTwemproxy(t, "", servers...)
	}},
}

// The doctor finds a proxy that separates names every time, and the remedy. It leaves only
// high-water marks on the servers.
func TestDoctorOfAProxy(t *testing.T) {
	t.Parallel()
	for name, proxy := range proxies {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			servers := []*redistest.Server{redistest.Start(t), redistest.Start(t)}
			addr := proxy.start(t, servers...)
			for range 20 {
				found := examine(t, at(t, addr))
				want(t, found, checkup.Critical, "routing", "unsafe", "Proxy", "hash_tag")
				want(t, found, checkup.Unchecked, "servers", "own address")
			}
			for range 3 {
				found := examine(t, at(t, addr, redisstore.Proxy()))
				want(t, found, checkup.Unchecked, "servers")
				wantNone(t, found, "lock", "push")
				if proxy.byTag {
					wantNone(t, found, "routing")
				} else {
					want(t, found, checkup.Critical, "routing", "unsafe", "hash tags", "enable_hashtagging")
				}
			}
			if proxy.byTag { // a single tag for all names needs no mode
				wantNone(t, examine(t, at(t, addr, redisstore.Prefix("{locks}:"))), "routing")
			}
			for _, s := range servers {
				keys, _ := s.MustCmd(t, "KEYS", "*lock*:dibs*").([]any)
				if len(keys) > 0 {
					t.Errorf("left: %q", keys)
				}
			}
		})
	}
}

// twemproxy with a single server ends the connection at INFO.
func TestDoctorOfAProxyWithOneServer(t *testing.T) {
	t.Parallel()
	addr := redistest.StartTwemproxy(t, "", redistest.Start(t))
	found := examine(t, at(t, addr))
	want(t, found, checkup.Warning, "proxy", "INFO", "Proxy")
	wantNone(t, found, "unreachable", "routing")
	wantNone(t, examine(t, at(t, addr, redisstore.Proxy())), "routing", "lock", "proxy")
}

// A single address in front of a cluster refuses keys in two slots, though it is no node.
func TestDoctorOfOneAddressOfACluster(t *testing.T) {
	t.Parallel()
	addr := redistest.NewRouter(t, redistest.BySlot, redistest.Start(t), redistest.Start(t)).Addr()
	found := examine(t, at(t, addr))
	want(t, found, checkup.Warning, "hidden-cluster", "in front of a cluster", "hidden_cluster=true", `Prefix("{locks}:")`)
	wantNone(t, found, "routing", "lock")
	wantNone(t, examine(t, at(t, addr, redisstore.HiddenCluster())), "hidden-cluster", "routing", "lock")
	wantNone(t, examine(t, at(t, addr, redisstore.Prefix("{locks}:"))), "hidden-cluster", "routing", "lock")
}

// A silent proxy is unreachable in each mode.
func TestDoctorOfAnAbsentProxy(t *testing.T) {
	t.Parallel()
	for _, options := range [][]redisstore.Option{nil, {redisstore.Proxy()}} {
		if found, err := checkup.Examine(t.Context(), at(t, "127.0.0.1:1", options...)); err == nil {
			t.Errorf("no error, but:\n%v", found)
		}
	}
}
