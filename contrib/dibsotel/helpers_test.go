package dibsotel_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/contrib/dibsotel"
	"github.com/dibslock/dibs/driver"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric/noop"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
)

func newLocks(tb testing.TB, store driver.Store, options ...dibs.Option) *dibs.Client {
	locks := dibs.New(store, options...)
	tb.Cleanup(func() { locks.Close() })
	return locks
}

// A recorder contains the ended spans.
type recorder struct {
	*tracetest.InMemoryExporter
	provider *sdktrace.TracerProvider
}

func newRecorder(tb testing.TB) *recorder {
	exporter := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter))
	tb.Cleanup(func() { provider.Shutdown(context.Background()) })
	return &recorder{exporter, provider}
}

// observe returns a client option. Its hooks use the recorder.
func (r *recorder) observe(c dibsotel.Config) dibs.Option {
	return dibs.Observe(r.hooks(c))
}

func (r *recorder) hooks(c dibsotel.Config) dibs.Hooks {
	c.TracerProvider, c.MeterProvider = r.provider, noop.NewMeterProvider()
	return dibsotel.Hooks(c)
}

// caller starts a caller's span.
func (r *recorder) caller(ctx context.Context) (context.Context, trace.Span) {
	return r.provider.Tracer("caller").Start(ctx, "caller")
}

// named returns the spans whose name begins with a prefix.
func (r *recorder) named(prefix string) tracetest.SpanStubs {
	return slices.DeleteFunc(r.GetSpans(), func(s tracetest.SpanStub) bool { return !strings.HasPrefix(s.Name, prefix) })
}

// only returns the only span with a name.
func (r *recorder) only(t *testing.T, name string) tracetest.SpanStub {
	t.Helper()
	spans := r.named(name)
	if len(spans) != 1 {
		t.Fatalf("%d spans %q, want 1, among %v", len(spans), name, names(r.GetSpans()))
	}
	return spans[0]
}

func names(spans tracetest.SpanStubs) (all []string) {
	for _, s := range spans {
		all = append(all, s.Name)
	}
	return all
}

// text returns the attributes as text, sorted.
func text(attributes []attribute.KeyValue) string {
	var words []string
	for _, a := range attributes {
		words = append(words, fmt.Sprintf("%s=%v", a.Key, a.Value.AsInterface()))
	}
	slices.Sort(words)
	return strings.Join(words, " ")
}

func events(s tracetest.SpanStub) string {
	var words []string
	for _, e := range s.Events {
		words = append(words, e.Name+"("+text(e.Attributes)+")")
	}
	return strings.Join(words, " ")
}

func want(t *testing.T, what, have, want string) {
	t.Helper()
	if have != want {
		t.Errorf("%s:\nhave %s\nwant %s", what, have, want)
	}
}

func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}
