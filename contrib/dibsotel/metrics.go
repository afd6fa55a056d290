package dibsotel

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/observe/classes"
	"github.com/dibslock/dibs/observe/outcome"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

const (
	keyClass = attribute.Key("dibs.class")
	keyEnd   = attribute.Key("dibs.end")
)

// Bounds for the histograms. A wait can be 0.1 ms or hours.
var (
	secondBounds = []float64{0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 7200}
	shareBounds  = []float64{0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1}
)

// A meter contains the instruments, and the measurements for each class.
type meter struct {
	acquired, held, handoff, renewed, headroom metric.Float64Histogram
	holding, waiting, degraded                 metric.Int64UpDownCounter
	lost, renewFailed                          metric.Int64Counter
	classes                                    *classes.Set[*classMeter]
	isDegraded                                 atomic.Bool // the Client, according to its last event
}

// newMeter makes the instruments.
func newMeter(c Config) (*meter, error) {
	i := instruments{meter: c.MeterProvider.Meter(scope)}
	m := &meter{
		acquired:    i.histogram("dibs.acquire.duration", "s", "Duration of calls that acquire.", secondBounds),
		held:        i.histogram("dibs.held.duration", "s", "Time that leases were held.", secondBounds),
		handoff:     i.histogram("dibs.handoff.duration", "s", "Time from a release to the next lease, by hand-off.", secondBounds),
		renewed:     i.histogram("dibs.renew.duration", "s", "Duration of requests that renew leases.", secondBounds),
		headroom:    i.histogram("dibs.headroom", "1", "Share of its time that a renewed lease had left.", shareBounds),
		holding:     i.upDownCounter("dibs.holding", "{lease}", "Leases that are held."),
		waiting:     i.upDownCounter("dibs.waiting", "{call}", "Calls in a wait queue."),
		degraded:    i.upDownCounter("dibs.degraded", "{client}", "Clients whose store cannot notify waiters."),
		lost:        i.counter("dibs.lost", "{lease}", "Leases that ended before they were unlocked."),
		renewFailed: i.counter("dibs.renew.failed", "{failure}", "Renewals whose outcome is unknown."),
		classes:     newSet(c, newClassMeter),
	}
	if err := errors.Join(i.errs...); err != nil {
		return nil, err
	}
	return m, nil
}

// instruments makes instruments and collects the errors.
type instruments struct {
	meter metric.Meter
	errs  []error
}

func (i *instruments) histogram(name, unit, description string, bounds []float64) metric.Float64Histogram {
	h, err := i.meter.Float64Histogram(name, metric.WithUnit(unit), metric.WithDescription(description), metric.WithExplicitBucketBoundaries(bounds...))
	i.errs = append(i.errs, err)
	return h
}

func (i *instruments) upDownCounter(name, unit, description string) metric.Int64UpDownCounter {
	c, err := i.meter.Int64UpDownCounter(name, metric.WithUnit(unit), metric.WithDescription(description))
	i.errs = append(i.errs, err)
	return c
}

func (i *instruments) counter(name, unit, description string) metric.Int64Counter {
	c, err := i.meter.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(description))
	i.errs = append(i.errs, err)
	return c
}

// observe adds the metrics to hooks that make spans.
func (m *meter) observe(h *dibs.Hooks) {
	h.Queued = both(h.Queued, m.onQueued)
	h.AcquireEnd = both(m.onAcquireEnd, h.AcquireEnd)
	h.RenewFailed = both(h.RenewFailed, m.onRenewFailed)
	h.Lost = both(h.Lost, m.onLost)
	h.Released = both(h.Released, m.onReleased)
	h.Renewed, h.Degraded = m.onRenewed, m.onDegraded
}

// both calls two hooks. Either can be nil.
func both[E any](first, second func(context.Context, E)) func(context.Context, E) {
	switch {
	case first == nil:
		return second
	case second == nil:
		return first
	}
	return func(ctx context.Context, e E) {
		first(ctx, e)
		second(ctx, e)
	}
}

func (m *meter) onQueued(ctx context.Context, e dibs.Queued) {
	m.waiting.Add(ctx, 1, m.classes.Of(e.Name()).add...)
}

func (m *meter) onAcquireEnd(ctx context.Context, e dibs.AcquireEnd) {
	class := m.classes.Of(e.Name())
	m.acquired.Record(ctx, e.Waited.Seconds(), class.acquired(outcome.OfKind(e.Kind), outcome.OfCall(&e))...)
	if e.Queued {
		m.waiting.Add(ctx, -1, class.add...)
	}
	if e.Err == nil {
		m.holding.Add(ctx, 1, class.add...)
	}
	if e.Handoff > 0 {
		m.handoff.Record(ctx, e.Handoff.Seconds())
	}
}

func (m *meter) onRenewFailed(ctx context.Context, e dibs.RenewFailed) {
	m.renewFailed.Add(ctx, 1, m.classes.Of(e.Name()).add...)
}

func (m *meter) onLost(ctx context.Context, e dibs.Lost) {
	class := m.classes.Of(e.Name())
	m.addLost(ctx, class, outcome.OfReason(e.Reason))
	m.onHeld(ctx, class, e.Kind, e.Held.Seconds(), outcome.Lost)
}

func (m *meter) addLost(ctx context.Context, class *classMeter, reason outcome.Reason) {
	m.lost.Add(ctx, 1, metric.WithAttributes(keyClass.String(class.name), keyReason.String(reason.String())))
}

func (m *meter) onReleased(ctx context.Context, e dibs.Released) {
	class := m.classes.Of(e.Name())
	how, why := outcome.OfRelease(e.Err)
	if how == outcome.Lost { // noticed by Unlock
		m.addLost(ctx, class, why)
	}
	m.onHeld(ctx, class, e.Kind, e.Held.Seconds(), how)
}

// onHeld measures an ended lease. An attached lease was not counted in holding, since it has no
// AcquireEnd.
func (m *meter) onHeld(ctx context.Context, class *classMeter, kind dibs.Kind, seconds float64, how outcome.End) {
	m.held.Record(ctx, seconds, class.held(outcome.OfKind(kind), how)...)
	if kind != dibs.KindAttached {
		m.holding.Add(ctx, -1, class.add...)
	}
}

func (m *meter) onRenewed(ctx context.Context, e dibs.Renewed) {
	m.renewed.Record(ctx, e.Took.Seconds())
	m.headroom.Record(ctx, e.Headroom)
}

// onDegraded counts changes only: the event of a beginning or of an end may have been dropped.
func (m *meter) onDegraded(ctx context.Context, e dibs.Degraded) {
	switch now := e.Err != nil; {
	case m.isDegraded.Swap(now) == now:
	case now:
		m.degraded.Add(ctx, 1)
	default:
		m.degraded.Add(ctx, -1)
	}
}

// A classMeter contains a class's attributes, so that a measurement allocates nothing.
type classMeter struct {
	name     string
	add      []metric.AddOption
	byResult [outcome.Kinds][outcome.Results]cachedOption
	byEnd    [outcome.Kinds][outcome.Ends]cachedOption
}

// A cachedOption is made when it is first needed.
type cachedOption struct {
	made atomic.Pointer[[]metric.RecordOption]
}

func newClassMeter(class string) *classMeter {
	option := metric.WithAttributeSet(attribute.NewSet(keyClass.String(class)))
	return &classMeter{name: class, add: []metric.AddOption{option}}
}

func (c *classMeter) acquired(kind outcome.Kind, result outcome.Result) []metric.RecordOption {
	cached := &c.byResult[kind][result]
	if made := cached.made.Load(); made != nil {
		return *made
	}
	return cached.set(keyClass.String(c.name), keyKind.String(kind.String()), keyResult.String(result.String()))
}

func (c *classMeter) held(kind outcome.Kind, how outcome.End) []metric.RecordOption {
	cached := &c.byEnd[kind][how]
	if made := cached.made.Load(); made != nil {
		return *made
	}
	return cached.set(keyClass.String(c.name), keyKind.String(kind.String()), keyEnd.String(how.String()))
}

func (c *cachedOption) set(attributes ...attribute.KeyValue) []metric.RecordOption {
	made := []metric.RecordOption{metric.WithAttributeSet(attribute.NewSet(attributes...))}
	c.made.Store(&made)
	return made
}
