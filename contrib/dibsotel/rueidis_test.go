package dibsotel_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/contrib/dibsotel"
	"github.com/dibslock/dibs/internal/test/redistest"
	"github.com/dibslock/dibs/rueidisstore"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidisotel"
	"go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
)

// openRueidis returns a rueidis client, instrumented by rueidisotel.
func openRueidis(t *testing.T, r *recorder, option rueidis.ClientOption) rueidis.Client {
	client, err := rueidisotel.NewClient(option, rueidisotel.WithTracerProvider(r.provider), rueidisotel.WithMeterProvider(noop.NewMeterProvider()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

// A call whose Redis client is closed sends pings, to find this out. They belong to the call. The
// subscription's pings belong to none.
func TestTraceOfPings(t *testing.T) {
	r := newRecorder(t)
	client := openRueidis(t, r, rueidis.ClientOption{InitAddress: []string{redistest.Start(t).Addr()}})
	locks := newLocks(t, rueidisstore.New(client), r.observe(dibsotel.Config{}))
	client.Close()
	if _, err := locks.Mutex("order:42").TryLock(t.Context()); !errors.Is(err, dibs.ErrUnavailable) {
		t.Fatal(err)
	}
	spans := r.tree()
	if !slices.ContainsFunc(r.named("PING"), func(s tracetest.SpanStub) bool { return spans.under(s, "dibs.") }) {
		t.Errorf("no ping of the call, among %v", names(r.GetSpans()))
	}
}
