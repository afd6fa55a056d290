package core

import (
	"context"
	"time"

	"github.com/dibslock/dibs/driver"
)

// StragglerTimeout is how long an operation waits for the remaining nodes once a majority
// has answered.
const StragglerTimeout = 50 * time.Millisecond

// A Call is an operation of a caller. It ends once, when a step has it in Effects.Ended.
// Until then its result is not known.
type Call struct {
	Context context.Context // of the caller; its values go with the messages of the call
	Done    chan struct{}   // for the caller of the machine, which does not use it

	Reply driver.AcquireReply // of an acquire or a resize
	OK    bool                // of a release or a revoke
	Errs  []error             // of an extend, by request
	Err   error

	op, name string
	until    time.Time // when the call ends at the latest
	straggle time.Time // from then on, it does not wait for the remaining nodes
	alarm    alarm
	ended    bool
	role     role
}

// A role decides what becomes of a call.
type role interface {
	straggled(m *Machine, now time.Time)                     // the remaining nodes are not waited for any longer
	expired(m *Machine, c *Call, now time.Time)              // the time of the call is over
	abandoned(m *Machine, c *Call, err error, now time.Time) // its caller does not wait any longer, because of err
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

// wake is called when the time of a call is over, or when it has waited long enough for
// the last nodes.
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

// end ends a call, whose result has been written.
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
