package dibsotel

import (
	"context"
	"strings"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/observe/classes"
	"github.com/dibslock/dibs/observe/outcome"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// Attributes for spans and events.
const (
	keyName     = attribute.Key("dibs.name")
	keyMore     = attribute.Key("dibs.more")
	keyKind     = attribute.Key("dibs.kind")
	keyResult   = attribute.Key("dibs.result")
	keyFence    = attribute.Key("dibs.fence")
	keyWeight   = attribute.Key("dibs.weight")
	keyLimit    = attribute.Key("dibs.limit")
	keyPosition = attribute.Key("dibs.position")
	keyTicket   = attribute.Key("dibs.ticket")
	keyNotified = attribute.Key("dibs.notified")
	keyWaited   = attribute.Key("dibs.waited")
	keyHeld     = attribute.Key("dibs.held")
	keyReason   = attribute.Key("dibs.reason")
	keyLeft     = attribute.Key("dibs.left")
	keyMessage  = attribute.Key("dibs.error")
	keyError    = attribute.Key("error.type")
)

// A tracer makes the spans. It is the key for its calls in contexts.
type tracer struct {
	tracer    trace.Tracer
	names     *classes.Set[*spanNames]
	hideNames bool
	heldSpans bool
}

// spanNames contains a class's span names.
type spanNames struct{ lock, held, lost string }

func newTracer(c Config) *tracer {
	return &tracer{
		tracer:    c.TracerProvider.Tracer(scope),
		hideNames: c.HideNames,
		heldSpans: c.HeldSpans,
		names: newSet(c, func(class string) *spanNames {
			return &spanNames{lock: "dibs.lock " + class, held: "dibs.held " + class, lost: "dibs.lost " + class}
		}),
	}
}

// A call is the context for a call with a recorded span. A single allocation serves as the context
// and as the call's state.
type call struct {
	context.Context // with the span
	tracer          *tracer
	names           *spanNames
	span            trace.Span
	held            trace.Span // nil before AcquireEnd, and without HeldSpans
	try             bool
}

// Value implements context.Context.
func (c *call) Value(key any) any {
	if key == any(c.tracer) {
		return c
	}
	return c.Context.Value(key)
}

// callIn returns the call in a hook's context, or nil if its span is not recorded.
func (t *tracer) callIn(ctx context.Context) *call {
	c, _ := ctx.Value(t).(*call)
	return c
}

func (t *tracer) acquireStart(ctx context.Context, e dibs.AcquireStart) context.Context {
	names := t.names.Of(e.Name())
	ctx, span := t.tracer.Start(ctx, names.lock)
	if !span.IsRecording() {
		return ctx
	}
	return &call{Context: ctx, tracer: t, names: names, span: span, try: e.Try}
}

func (t *tracer) queued(ctx context.Context, e dibs.Queued) {
	c := t.callIn(ctx)
	if c == nil {
		return
	}
	attributes := []attribute.KeyValue{keyPosition.Int(e.Position), keyTicket.Int64(int64(e.Ticket))}
	c.span.SetAttributes(attributes...)
	c.span.AddEvent("queued", trace.WithAttributes(attributes...))
}

func (t *tracer) acquireEnd(ctx context.Context, e dibs.AcquireEnd) {
	c := t.callIn(ctx)
	if c == nil {
		return
	}
	result := outcome.OfCall(&e)
	attributes := make([]attribute.KeyValue, 0, 4) // enough for most calls
	attributes = t.describe(attributes, &e.LockInfo)
	attributes = append(attributes, keyResult.String(result.String()))
	if e.Err == nil {
		attributes = append(attributes, keyFence.Int64(int64(e.Fence)))
	}
	if e.Queued {
		attributes = append(attributes, keyNotified.Bool(e.Notified), seconds(keyWaited, e.Waited))
	}
	switch {
	case e.Err == nil && e.Queued:
		c.span.AddEvent("granted", trace.WithAttributes(keyFence.Int64(int64(e.Fence)), keyNotified.Bool(e.Notified)))
	case e.Err != nil && (!c.try || result != outcome.Busy):
		attributes = append(attributes, keyError.String(result.String()))
		c.span.SetStatus(codes.Error, t.message(e.Err, result.String()))
	}
	c.span.SetAttributes(attributes...)
	c.span.End()
	if e.Err == nil && t.heldSpans {
		_, c.held = t.tracer.Start(c, c.names.held)
	}
}

func (t *tracer) renewFailed(ctx context.Context, e dibs.RenewFailed) {
	if c := t.callIn(ctx); c != nil && c.held != nil {
		c.held.AddEvent("renewal failed", trace.WithAttributes(
			seconds(keyLeft, e.Left), keyMessage.String(t.message(e.Err, outcome.OfError(e.Err).String()))))
	}
}

func (t *tracer) lost(ctx context.Context, e dibs.Lost) {
	var span trace.Span
	if c := t.callIn(ctx); c != nil && c.held != nil {
		span = c.held
	} else {
		_, span = t.tracer.Start(ctx, t.names.Of(e.Name()).lost)
	}
	defer span.End()
	if !span.IsRecording() {
		return
	}
	attributes := t.describe(make([]attribute.KeyValue, 0, 6), &e.LockInfo)
	attributes = append(attributes, keyFence.Int64(int64(e.Fence)), seconds(keyHeld, e.Held), keyReason.String(outcome.OfReason(e.Reason).String()))
	if e.Reason != dibs.ReasonClosed {
		attributes = append(attributes, keyError.String("lost"))
		span.SetStatus(codes.Error, t.message(e.Err, "lost: "+outcome.OfReason(e.Reason).String()))
	}
	span.SetAttributes(attributes...)
}

// released is called only with HeldSpans.
func (t *tracer) released(ctx context.Context, e dibs.Released) {
	c := t.callIn(ctx)
	if c == nil || c.held == nil {
		return
	}
	attributes := t.describe(make([]attribute.KeyValue, 0, 4), &e.LockInfo)
	attributes = append(attributes, keyFence.Int64(int64(e.Fence)))
	if e.Err != nil {
		how, _ := outcome.OfRelease(e.Err)
		attributes = append(attributes, keyError.String(how.String()))
		c.held.SetStatus(codes.Error, t.message(e.Err, how.String()))
	}
	c.held.SetAttributes(attributes...)
	c.held.End()
}

// describe appends a lock's attributes.
func (t *tracer) describe(to []attribute.KeyValue, info *dibs.LockInfo) []attribute.KeyValue {
	if !t.hideNames {
		to = append(to, keyName.String(info.Name()))
		if len(info.Names) > 1 {
			to = append(to, keyMore.StringSlice(info.Names[1:]))
		}
	}
	to = append(to, keyKind.String(string(info.Kind)))
	if info.Kind == dibs.KindSemaphore {
		to = append(to, keyWeight.Int(info.Weight), keyLimit.Int(info.Limit))
	}
	return to
}

// message returns an error's message as valid UTF-8, which exporters require. If names are hidden,
// it returns a substitute for the message.
func (t *tracer) message(err error, instead string) string {
	if t.hideNames {
		return instead
	}
	return strings.ToValidUTF8(err.Error(), "\uFFFD")
}

func seconds(key attribute.Key, d time.Duration) attribute.KeyValue {
	return key.Float64(d.Seconds())
}
