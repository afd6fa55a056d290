package load

import (
	"fmt"
	"time"
)

// A Turn is how long a goroutine of this process waited until it ran. In a process that computes,
// timers are on time, and what waits for the network is not.
type Turn time.Duration

// OfAnswer returns how long an answer may wait in this process, for several turns. It is zero if
// that cannot be noticed.
func (t Turn) OfAnswer() time.Duration {
	const noticeable, turns = 5 * time.Millisecond, 4
	if time.Duration(t) < noticeable {
		return 0
	}
	return turns * time.Duration(t)
}

// TooLittleCPU returns the error of a process that was late by some time, or nil if that is too
// short to be the cause of anything.
func TooLittleCPU(late time.Duration) error {
	const noticeable = 50 * time.Millisecond
	if late < noticeable {
		return nil
	}
	return fmt.Errorf("this process was late by %v: it has too little CPU", late.Round(time.Millisecond))
}
