package dibsotel_test

import (
	"context"
	"fmt"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/contrib/dibsotel"
	"github.com/dibslock/dibs/memstore"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
)

func ExampleHooks() {
	exporter := tracetest.NewInMemoryExporter() // otlptracegrpc.New in production, with sdktrace.WithBatcher
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter))
	defer provider.Shutdown(context.Background())

	locks := dibs.New(memstore.New(), dibs.Observe(dibsotel.Hooks(dibsotel.Config{TracerProvider: provider})))
	defer locks.Close()
	err := locks.Mutex("order:42").Do(context.Background(), func(context.Context) error { return nil })
	if err != nil {
		panic(err)
	}
	for _, span := range exporter.GetSpans() {
		fmt.Println(span.Name)
		for _, a := range span.Attributes {
			if a.Key != "dibs.fence" {
				fmt.Println(" ", a.Key, a.Value.AsInterface())
			}
		}
	}
	// Output:
	// dibs.lock order:*
	//   dibs.name order:42
	//   dibs.kind mutex
	//   dibs.result acquired
}
