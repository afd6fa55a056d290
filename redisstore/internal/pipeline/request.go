package pipeline

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/dibslock/dibs/redisstore/internal/wire"
	"github.com/dibslock/dibs/redisstore/redisconn"
)

// A Request is a single script call. Pipeline.Do can use its memory for another request.
type Request struct {
	wire.Request
	Extends bool // it extends leases, as renewals do

	ctx   context.Context // the caller's, for its values
	reply redisconn.Reply
	done  chan struct{}
	until time.Time // when the caller stops waiting

	// Guarded by the pipeline's mutex:
	sent      bool
	abandoned bool // the caller does not wait any longer
	timedOut  bool // because its limit has passed
	alone     bool // its caller sends it
	connErr   error
	batch     *batch
}

// A RequestPool keeps requests for reuse. Stores do not share a pool: a request's channel may
// belong to a test's synctest bubble.
type RequestPool struct{ pool sync.Pool }

// Get returns an unused request.
func (p *RequestPool) Get() *Request {
	if old, ok := p.pool.Get().(*Request); ok {
		return old
	}
	return &Request{done: make(chan struct{}, 1)}
}

// Put takes back a request that Pipeline.Do returned.
func (p *RequestPool) Put(old *Request) {
	*old = Request{Request: old.Request, done: old.done}
	p.pool.Put(old)
}

// voidTexts writes the until arguments for a batch. Arguments that differ by less than 1 ms share
// the earlier text, because each text is an allocation.
type voidTexts struct {
	server int64
	text   string
}

// write writes the argument, in µs on the server's clock, if there is an argument.
func (v *voidTexts) write(r *Request, server int64) {
	if !r.Voidable() {
		return
	}
	if v.text == "" || server < v.server || server-v.server >= 1000 {
		v.server, v.text = server, strconv.FormatInt(server, 10)
	}
	r.SetUntil(v.text)
}
