package pipeline

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/dibslock/dibs/redisstore/internal/wire"
	"github.com/dibslock/dibs/redisstore/redisconn"
)

// A Request is one script call. Pipeline.Do takes it, and may use it for another one.
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
	timedOut  bool // because until has passed
	alone     bool // its caller sends it
	connErr   error
	batch     *batch
}

// A RequestPool has requests for reuse. Stores do not share a pool: the channel of a
// request may belong to a test's synctest bubble.
type RequestPool struct{ pool sync.Pool }

// Get returns a request that is not in use.
func (p *RequestPool) Get() *Request {
	if old, ok := p.pool.Get().(*Request); ok {
		return old
	}
	return &Request{done: make(chan struct{}, 1)}
}

// Put takes back a request that Pipeline.Do has returned.
func (p *RequestPool) Put(old *Request) {
	*old = Request{Request: old.Request, done: old.done}
	p.pool.Put(old)
}

// voidTexts writes the until arguments of one batch. Arguments that differ by less than
// 1 ms share the text of the first one, which is the earlier: each text is an allocation.
type voidTexts struct {
	server int64
	text   string
}

// write writes that argument, if there is one: µs of the server's clock.
func (v *voidTexts) write(r *Request, server int64) {
	if !r.Voidable() {
		return
	}
	if v.text == "" || server < v.server || server-v.server >= 1000 {
		v.server, v.text = server, strconv.FormatInt(server, 10)
	}
	r.SetUntil(v.text)
}
