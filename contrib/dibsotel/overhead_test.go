package dibsotel_test

import (
	"context"
	"testing"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/contrib/dibsotel"
	"github.com/dibslock/dibs/memstore"
	nometrics "go.opentelemetry.io/otel/metric/noop"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	notraces "go.opentelemetry.io/otel/trace/noop"
)

// discard is a processor, in an exporter's place, that drops the spans.
type discard struct{}

func (discard) OnStart(context.Context, sdktrace.ReadWriteSpan) {}
func (discard) OnEnd(sdktrace.ReadOnlySpan)                     {}
func (discard) Shutdown(context.Context) error                  { return nil }
func (discard) ForceFlush(context.Context) error                { return nil }

// BenchmarkOverhead measures lock and unlock in memory. The difference to "bare" is the hooks'
// cost. "dibs" includes traces and metrics. The span in "span only" has no attributes, so it shows
// the SDK's own cost.
func BenchmarkOverhead(b *testing.B) {
	traces := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(discard{}))
	never := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(discard{}), sdktrace.WithSampler(sdktrace.NeverSample()))
	metrics := sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader()))
	off, offMetrics := notraces.NewTracerProvider(), nometrics.NewMeterProvider()
	b.Run("bare", func(b *testing.B) { lockAndUnlock(b) })
	for _, c := range []struct {
		name  string
		hooks dibs.Hooks
	}{
		{"empty", dibs.Hooks{AcquireEnd: func(context.Context, dibs.AcquireEnd) {}}},
		{"never sampled", dibsotel.Hooks(dibsotel.Config{TracerProvider: never, MeterProvider: offMetrics})},
		{"traces", dibsotel.Hooks(dibsotel.Config{TracerProvider: traces, MeterProvider: offMetrics})},
		{"traces and held spans", dibsotel.Hooks(dibsotel.Config{TracerProvider: traces, MeterProvider: offMetrics, HeldSpans: true})},
		{"metrics", dibsotel.Hooks(dibsotel.Config{TracerProvider: off, MeterProvider: metrics})},
		{"dibs", dibsotel.Hooks(dibsotel.Config{TracerProvider: traces, MeterProvider: metrics})},
	} {
		b.Run(c.name, func(b *testing.B) { lockAndUnlock(b, dibs.Observe(c.hooks)) })
	}
	for name, provider := range map[string]*sdktrace.TracerProvider{"span only": traces, "span only never sampled": never} {
		b.Run(name, func(b *testing.B) {
			tracer := provider.Tracer("bench")
			b.ReportAllocs()
			for b.Loop() {
				_, span := tracer.Start(b.Context(), "empty")
				span.End()
			}
		})
	}
}

func lockAndUnlock(b *testing.B, options ...dibs.Option) {
	locks := newLocks(b, memstore.New(), options...)
	b.ReportAllocs()
	for b.Loop() {
		lease, err := locks.Mutex("order:42").Lock(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		if err := lease.Unlock(); err != nil {
			b.Fatal(err)
		}
	}
}
