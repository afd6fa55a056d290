// Package directive silences findings.
package directive

import (
	"context"

	"github.com/dibslock/dibs"
)

func above(ctx context.Context, m *dibs.Mutex) {
	//dibsvet:ignore lostlease the process ends with the work
	_, _ = m.Lock(ctx)
}

func sameLine(ctx context.Context, m *dibs.Mutex) {
	_, _ = m.Lock(ctx) //dibsvet:ignore lostlease the process ends with the work
}

func several(ctx context.Context, m *dibs.Mutex) {
	_, _ = m.Lock(ctx) //dibsvet:ignore badname,lostlease the process ends with the work
}

func withoutReason(ctx context.Context, m *dibs.Mutex) {
	//dibsvet:ignore lostlease
	_, _ = m.Lock(ctx) // want `the lease is discarded.* \(dibsvet:ignore has no effect here: it gives no reason\)`
}

func otherCheck(ctx context.Context, m *dibs.Mutex) {
	//dibsvet:ignore badname the process ends with the work
	_, _ = m.Lock(ctx) // want `the lease is discarded`
}

func otherLine(ctx context.Context, m *dibs.Mutex) {
	//dibsvet:ignore lostlease the process ends with the work

	_, _ = m.Lock(ctx) // want `the lease is discarded`
}

func noDirective(ctx context.Context, m *dibs.Mutex) {
	// dibsvet:ignore lostlease a directive has no space before its name
	_, _ = m.Lock(ctx) // want `the lease is discarded`
}
