package redistest

import (
	"context"
	"os"
	"syscall"
	"time"
	"unsafe"
)

// A preciseTimer waits for a point in time, more precisely than a time.Timer. On an idle machine,
// Go sleeps in epoll_wait, which counts whole milliseconds. So 0.3 ms become 1.1, 1.5 become 2.2,
// and each chunk in a stream delayed by 1 ms waits for the next multiple. A timerfd ends the same
// epoll_wait about 0.04 ms after the due time, and needs no thread.
//
// The zero value is ready for use, by one goroutine with a single ctx.
type preciseTimer struct {
	file    *os.File // nil until first needed
	unwatch func() bool
}

// wait returns true at the given time, or false if ctx ends earlier.
func (a *preciseTimer) wait(ctx context.Context, until time.Time) bool {
	for ctx.Err() == nil {
		left := time.Until(until)
		if left <= 0 {
			return true
		}
		if err := a.sleep(ctx, left); err != nil && ctx.Err() == nil {
			panic("redistest: timerfd: " + err.Error())
		}
	}
	return false
}

func (a *preciseTimer) sleep(ctx context.Context, d time.Duration) error {
	if err := a.open(ctx); err != nil {
		return err
	}
	if err := a.set(d); err != nil {
		return err
	}
	var expirations [8]byte
	_, err := a.file.Read(expirations[:])
	return err
}

func (a *preciseTimer) open(ctx context.Context) error {
	if a.file != nil {
		return nil
	}
	const monotonic = 1
	fd, _, errno := syscall.Syscall(syscall.SYS_TIMERFD_CREATE, monotonic, syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
	if errno != 0 {
		return errno
	}
	a.file = os.NewFile(fd, "timerfd") // uses the poller, because it does not block
	a.unwatch = context.AfterFunc(ctx, func() { a.file.Close() })
	return nil
}

// set uses SyscallConn, so the descriptor cannot be closed and reused for another file meanwhile.
func (a *preciseTimer) set(d time.Duration) error {
	conn, err := a.file.SyscallConn()
	if err != nil {
		return err
	}
	spec := struct{ interval, value syscall.Timespec }{value: syscall.NsecToTimespec(int64(d))}
	var errno syscall.Errno
	err = conn.Control(func(fd uintptr) {
		_, _, errno = syscall.Syscall6(syscall.SYS_TIMERFD_SETTIME, fd, 0, uintptr(unsafe.Pointer(&spec)), 0, 0, 0)
	})
	if errno != 0 {
		return errno
	}
	return err
}

func (a *preciseTimer) stop() {
	if a.file != nil {
		a.unwatch()
		a.file.Close()
	}
}
