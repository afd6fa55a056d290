package supervise

import (
	"math"
	"time"
)

// A killing is the work of the watchdog process that kills everything, in sweeps. It is
// complete after two sweeps in a row that find nothing: one sweep may miss a process that
// is being started. The zero value is not in progress.
type killing struct {
	cleanSweepsLeft int // sweeps that must still find nothing; 0: not in progress
	sweeps          int // since the begin
	blindSweeps     int // in a row, that found nothing although children exist
}

// maxBlindSweeps limits the sweeps in a row that find nothing although children exist. They
// may belong to another user, and the watchdog process cannot kill them.
const maxBlindSweeps = 10_000

func (k *killing) begin() { *k = killing{cleanSweepsLeft: 2} }

func (k *killing) stop() { k.cleanSweepsLeft = 0 }

func (k *killing) inProgress() bool { return k.cleanSweepsLeft > 0 }

// sweep calls kill once, if a killing is in progress. kill reports whether it found a
// process.
func (k *killing) sweep(kill, hasChildren func() bool) {
	k.sweeps++
	switch {
	case !k.inProgress():
	case kill():
		k.cleanSweepsLeft, k.blindSweeps = 2, 0
	case k.blindSweeps < maxBlindSweeps && hasChildren():
		k.blindSweeps++
	default:
		k.cleanSweepsLeft--
	}
}

// pause returns the time until the next sweep. The pauses grow, since a process that
// cannot be killed now may need long to exit.
func (k *killing) pause() time.Duration {
	const again, rare = time.Millisecond, 200 * time.Millisecond
	switch {
	case !k.inProgress():
		return math.MaxInt64
	case k.blindSweeps > 0:
		return again
	}
	return min(time.Duration(k.sweeps)*again, rare)
}
