package dibsotel

import (
	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/observe/classes"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
)

// scope is the instrumentation scope's name.
const scope = "github.com/dibslock/dibs/contrib/dibsotel"

// A Config configures Hooks. The zero value is ready for use.
type Config struct {
	// TracerProvider makes the spans. Nil means package otel's global provider. The provider from
	// package go.opentelemetry.io/otel/trace/noop turns traces off.
	TracerProvider trace.TracerProvider

	// MeterProvider makes the instruments. Nil means package otel's global provider. The provider
	// from package go.opentelemetry.io/otel/metric/noop turns metrics off.
	MeterProvider metric.MeterProvider

	// Class returns a lock name's class, for span names and for metrics. It must be safe for
	// concurrent use, and fast. Its result is cut to 64 bytes of valid UTF-8. Nil means that ids
	// are replaced: order:42 is in the class order:*.
	Class func(name string) string

	// MaxClasses limits the number of classes. Names in further classes are in the class "other".
	// Zero or less means 200.
	MaxClasses int

	// HideNames leaves lock names out: the attributes dibs.name and dibs.more, and the error
	// messages, which contain names. Classes stay.
	HideNames bool

	// HeldSpans adds a span for the time that each lease is held. An exporter receives it when the
	// lease ends, which can be after hours.
	HeldSpans bool
}

// Hooks returns hooks for dibs.New, with dibs.Observe. A lock or a call accepts them if Renewed and
// Degraded, whose events are of the whole Client, are set to nil. Each Client should get its own
// hooks, because they remember whether their Client is degraded.
//
// If the MeterProvider cannot make an instrument, otel.Handle receives the error, and there
// are no metrics.
func Hooks(c Config) dibs.Hooks {
	if c.TracerProvider == nil {
		c.TracerProvider = otel.GetTracerProvider()
	}
	if c.MeterProvider == nil {
		c.MeterProvider = otel.GetMeterProvider()
	}
	t := newTracer(c)
	m, err := newMeter(c)
	if err != nil {
		otel.Handle(err)
	}
	h := dibs.Hooks{
		AcquireStart: t.acquireStart, Queued: t.queued, AcquireEnd: t.acquireEnd,
		Lost: t.lost,
	}
	if c.HeldSpans {
		h.RenewFailed, h.Released = t.renewFailed, t.released
	}
	if m != nil {
		m.observe(&h)
	}
	return h
}

// newSet returns a Set for a Config's classes.
func newSet[T any](c Config, value func(class string) T) *classes.Set[T] {
	return classes.NewSet(c.Class, c.MaxClasses, value)
}
