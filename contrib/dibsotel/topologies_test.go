package dibsotel_test

import (
	"context"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/contrib/dibsotel"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/goredisstore"
	"github.com/dibslock/dibs/internal/test/redistest"
	"github.com/dibslock/dibs/quorum"
	"github.com/dibslock/dibs/redisstore"
	"github.com/dibslock/dibs/rueidisstore"
	"github.com/redis/go-redis/extra/redisotel/v9"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"go.opentelemetry.io/otel/trace"
)

// A topology is a way to run Redis, with the necessary store options.
type topology struct {
	name    string
	options []redisstore.Option
	start   func(t *testing.T) servers
}

// servers contains a topology's servers. Each group is a store; a quorum has several.
type servers struct {
	groups  [][]string // addresses
	cluster bool
	master  string              // the sentinels' name for it; the addresses are theirs
	masters []*redistest.Server // containing the names in a topology without a cluster, or on a node
}

func single(s *redistest.Server) servers {
	return servers{groups: [][]string{{s.Addr()}}, masters: []*redistest.Server{s}}
}

var withReplicas = []redisstore.Option{redisstore.WithReplicas(1, 2*time.Second)}

func topologies() []topology {
	return []topology{
		{"server", nil, func(t *testing.T) servers { return single(redistest.Start(t)) }},
		{"cluster node", nil, func(t *testing.T) servers {
			s := single(redistest.StartClusterNode(t))
			s.cluster = true
			return s
		}},
		{"replicas", withReplicas, func(t *testing.T) servers { return single(redistest.StartReplicated(t, 1).Master) }},
		{"cluster with replicas", withReplicas, func(t *testing.T) servers {
			return servers{groups: [][]string{redistest.StartCluster(t, 3, 1).Addrs()}, cluster: true}
		}},
		{"sentinel", nil, startSentinels},
		{"sentinel with replicas", withReplicas, startSentinels},
		{"quorum", nil, func(t *testing.T) (all servers) {
			for range 3 {
				s := single(redistest.Start(t))
				all.groups, all.masters = append(all.groups, s.groups...), append(all.masters, s.masters...)
			}
			return all
		}},
	}
}

func startSentinels(t *testing.T) servers {
	s := redistest.StartSentinels(t, 1, 3)
	master, err := s.Master()
	if err != nil {
		t.Fatal(err)
	}
	return servers{groups: [][]string{s.Addrs()}, master: s.MasterName, masters: []*redistest.Server{master}}
}

// clients contains the instrumented Redis clients, each with its store.
var clients = map[string]func(t *testing.T, s servers, addrs []string, r *recorder, options []redisstore.Option) *redisstore.Store{
	"go-redis": func(t *testing.T, s servers, addrs []string, r *recorder, options []redisstore.Option) *redisstore.Store {
		var rdb redis.UniversalClient
		switch {
		case s.cluster:
			rdb = redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs})
		case s.master != "":
			rdb = redis.NewFailoverClient(&redis.FailoverOptions{MasterName: s.master, SentinelAddrs: addrs})
		default:
			rdb = redis.NewClient(&redis.Options{Addr: addrs[0]})
		}
		t.Cleanup(func() { rdb.Close() })
		err := redisotel.InstrumentTracing(rdb, redisotel.WithTracerProvider(r.provider), redisotel.WithDBStatement(false), redisotel.WithDialFilter(true))
		if err != nil {
			t.Fatal(err)
		}
		return goredisstore.New(rdb, options...)
	},
	"rueidis": func(t *testing.T, s servers, addrs []string, r *recorder, options []redisstore.Option) *redisstore.Store {
		option := rueidis.ClientOption{InitAddress: addrs}
		if s.master != "" {
			option.Sentinel = rueidis.SentinelOption{MasterSet: s.master, TopologyRefreshInterval: 100 * time.Millisecond}
		}
		return rueidisstore.New(openRueidis(t, r, option), options...)
	},
}

// A bed is a trace test's environment: a topology's servers, with a Redis client. Its keys belong
// to a single test.
type bed struct {
	topology string
	servers  servers
	prefix   string
	store    func(t *testing.T, r *recorder) driver.Store
}

// onEachTopology runs a test on each topology, with each Redis client.
func onEachTopology(t *testing.T, test func(t *testing.T, b bed)) {
	for _, at := range topologies() {
		t.Run(at.name, func(t *testing.T) {
			t.Parallel()
			s := at.start(t)
			for client, open := range clients {
				t.Run(client, func(t *testing.T) {
					prefix := client + ":"
					options := append([]redisstore.Option{redisstore.Prefix(prefix)}, at.options...)
					test(t, bed{at.name, s, prefix, func(t *testing.T, r *recorder) driver.Store {
						var stores []driver.Voter
						for _, addrs := range s.groups {
							stores = append(stores, open(t, s, addrs, r, options))
						}
						return combine(t, stores)
					}})
				})
			}
		})
	}
}

// combine returns the only store, or a quorum with several.
func combine(t *testing.T, stores []driver.Voter) driver.Store {
	if len(stores) == 1 {
		return stores[0]
	}
	all, err := quorum.New(stores, quorum.DurableNodes())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { all.Close() })
	return all
}

// open returns a client for locks, with a recorder for its spans and Redis's. Its operations' time
// limit is long, for a busy machine.
func (b bed) open(t *testing.T, options ...dibs.Option) (*dibs.Client, *recorder) {
	r := newRecorder(t)
	store := markedRenewals{driver.Complete(b.store(t, r)), r.provider.Tracer("test")}
	patient := []dibs.Option{dibs.Timeout(30 * time.Second), r.observe(dibsotel.Config{})}
	return newLocks(t, store, append(patient, options...)...), r
}

// markedRenewals is a store that makes the span "renewal" for each Extend without a span in its
// context. It marks the renewals' commands, which belong to no call.
type markedRenewals struct {
	*driver.Full
	tracer trace.Tracer
}

func (m markedRenewals) Extend(ctx context.Context, requests []driver.ExtendRequest) []error {
	if trace.SpanContextFromContext(ctx).IsValid() {
		return m.Store.Extend(ctx, requests)
	}
	ctx, span := m.tracer.Start(ctx, "renewal")
	defer span.End()
	return m.Store.Extend(ctx, requests)
}
