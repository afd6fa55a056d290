package load

import (
	"fmt"
	"time"
)

// OwnDelay returns how long an answer may wait in this process. turn is how long a goroutine waited
// to run. A busy process reads an answer after several turns, although its timers fire on time. The
// delay is zero if nobody would notice it.
func OwnDelay(turn time.Duration) time.Duration {
	const noticeable, turns = 5 * time.Millisecond, 4
	if turn < noticeable {
		return 0
	}
	return turns * turn
}

// TooLittleCPU returns an error for a process that ran late, or nil if the delay is too short to
// matter.
func TooLittleCPU(late time.Duration) error {
	const noticeable = 50 * time.Millisecond
	if late < noticeable {
		return nil
	}
	return fmt.Errorf("this process was late by %v: it has too little CPU", late.Round(time.Millisecond))
}
