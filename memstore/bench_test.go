package memstore_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/memstore"
)

func request(token string) driver.AcquireRequest {
	return driver.AcquireRequest{Name: "n", Token: token, Client: "c", TTL: time.Minute, Weight: 1, Limit: 1, Queue: true}
}

func acquire(b *testing.B, s driver.Store, r driver.AcquireRequest) driver.AcquireReply {
	b.Helper()
	r.Until = time.Now().Add(time.Minute)
	reply, err := s.Acquire(b.Context(), r)
	if err != nil {
		b.Fatal(err)
	}
	return reply
}

func release(b *testing.B, s driver.Store, token string) {
	b.Helper()
	held, err := s.Release(b.Context(), driver.ReleaseRequest{Name: "n", Token: token, Until: time.Now().Add(time.Minute)})
	if err != nil || !held {
		b.Fatal(held, err)
	}
}

// A lease is acquired and released.
func BenchmarkLock(b *testing.B) {
	s := memstore.New()
	b.ReportAllocs()
	for b.Loop() {
		acquire(b, s, request("a"))
		release(b, s, "a")
	}
}

// A release grants the name to the waiter, which is notified.
func BenchmarkHandOff(b *testing.B) {
	s := memstore.New()
	connected := make(chan struct{}, 1)
	go func() {
		_ = s.Watch(b.Context(), "c", nil, func(e driver.Event) {
			if e.Kind == driver.EventConnected {
				connected <- struct{}{}
			}
		})
	}()
	<-connected
	holder, waiter := "a", "b"
	acquire(b, s, request(holder))
	b.ReportAllocs()
	for b.Loop() {
		acquire(b, s, request(waiter))
		release(b, s, holder)
		holder, waiter = waiter, holder
	}
}

// A hundred leases are renewed together.
func BenchmarkExtend(b *testing.B) {
	s := memstore.New()
	var requests []driver.ExtendRequest
	for i := range 100 {
		r := request("a")
		r.Name = fmt.Sprint("n", i)
		acquire(b, s, r)
		requests = append(requests, driver.ExtendRequest{Name: r.Name, Token: r.Token, Client: r.Client, TTL: r.TTL})
	}
	b.ReportAllocs()
	for b.Loop() {
		for _, err := range s.Extend(context.Background(), requests) {
			if err != nil {
				b.Fatal(err)
			}
		}
	}
}
