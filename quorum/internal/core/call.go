package core

import (
	"context"
	"time"

	"github.com/dibslock/dibs/driver"
)

// StragglerTimeout is how long an operation waits for the remaining nodes after a majority
// answered.
const StragglerTimeout = 50 * time.Millisecond

// A Call is a caller's operation. It ends once, in the step that returns it in Effects.Ended. Until
// then its result is unknown.
type Call struct {
	Context context.Context // the caller's context; the call's messages carry its values
	Done    chan struct{}   // for the runner; the machine does not use it

	Reply driver.AcquireReply // for an acquire or a resize
	OK    bool                // for a release or a revoke
	Errs  []error             // for an extend, by request
	Err   error

	op, name string
	until    time.Time // when the call ends at the latest
	straggle time.Time // from then on, it does not wait for the remaining nodes
	alarm    alarm
	ended    bool
	role     role
}

// A role decides how a call continues.
type role interface {
	straggled(m *Machine, now time.Time)                     // the remaining nodes are not waited for any longer
	expired(m *Machine, c *Call, now time.Time)              // the call's time is over
	abandoned(m *Machine, c *Call, err error, now time.Time) // the caller left because of err
}

// begin starts a call.
func (m *Machine) begin(c *Call, op, name string, r role, until, now time.Time) {
	c.op, c.name, c.role, c.until, c.straggle = op, name, r, until, now.Add(StragglerTimeout)
	c.alarm.owner = c
	m.setCallAlarm(c)
}

func (m *Machine) setCallAlarm(c *Call) {
	at := c.until
	if !c.straggle.IsZero() && c.straggle.Before(at) {
		at = c.straggle
	}
	m.alarms.set(&c.alarm, at)
}

// wake runs when a call's time is over, or when it waited long enough for the last nodes.
func (c *Call) wake(m *Machine, now time.Time) {
	if !c.straggle.IsZero() && !now.Before(c.straggle) {
		c.straggle = time.Time{}
		c.role.straggled(m, now)
	}
	switch {
	case c.ended:
	case now.Before(c.until):
		m.setCallAlarm(c)
	default:
		c.role.expired(m, c, now)
	}
}

// end ends a call after its result was written.
func (m *Machine) end(c *Call) {
	if c.ended {
		return
	}
	c.ended = true
	m.alarms.stop(&c.alarm)
	m.effects.Ended = append(m.effects.Ended, c)
}

// Leave ends a call whose caller does not wait any longer. cause is why.
func (m *Machine) Leave(c *Call, cause error, now time.Time) Effects {
	switch {
	case c.ended:
	case !now.Before(c.until):
		c.role.expired(m, c, now)
	default:
		c.role.abandoned(m, c, &driver.UnavailableError{Op: c.op, Name: c.name, Cause: cause}, now)
	}
	return m.flush()
}
