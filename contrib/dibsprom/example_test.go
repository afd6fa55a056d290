package dibsprom_test

import (
	"context"
	"fmt"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/contrib/dibsprom"
	"github.com/dibslock/dibs/memstore"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

func Example() {
	registry := prometheus.NewRegistry() // prometheus.DefaultRegisterer in most programs
	metrics, err := dibsprom.New(registry, dibsprom.Config{})
	if err != nil {
		panic(err)
	}
	locks := dibs.New(memstore.New(), dibs.Observe(metrics.Hooks()))
	defer locks.Close()

	_ = locks.Mutex("order:42").Do(context.Background(), func(context.Context) error {
		count, err := testutil.GatherAndCount(registry, "dibs_acquire_seconds")
		fmt.Println(count, err)
		return nil
	})
	// Output: 1 <nil>
}
