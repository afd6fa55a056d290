package localstore

import (
	"os"
	"strings"
	"time"

	"github.com/dibslock/dibs/kvstore"
)

// machine identifies this machine. It does not change with a restart.
func machine() string {
	if id, err := os.ReadFile("/etc/machine-id"); err == nil && len(strings.TrimSpace(string(id))) > 0 {
		return strings.TrimSpace(string(id))
	}
	host, _ := os.Hostname()
	return host
}

// A clockEpoch identifies the clock for a file's entries: its boot, its machine, and the wall-clock
// time of its zero.
type clockEpoch struct {
	boot    string
	since   time.Duration // wall-clock time
	machine string
}

// epoch returns this process's epoch.
func (c clock) epoch() clockEpoch {
	return clockEpoch{c.boot, time.Duration(time.Now().UnixNano()) - c.now(), machine()}
}

// difference returns the difference between two readings of the epoch's wall-clock time.
func (e clockEpoch) difference(other clockEpoch) time.Duration { return (e.since - other.since).Abs() }

// sameClock reports whether two epochs use the same clock. Some containers have their own boot ID,
// but use the kernel's clock like all others.
func (e clockEpoch) sameClock(other clockEpoch) bool {
	const near = time.Second
	return e.boot == other.boot || e.difference(other) < near
}

// convert converts another epoch's entries to this epoch: the machine was restarted, or another
// machine uses the file. It deletes no entry that may be valid:
//   - if an owner is alive, the file belongs to its epoch, and convert returns an error;
//   - if an owner on this machine is dead, its leases ended with the restart;
//   - all other leases end by the wall clock.
func (f *file) convert(before clockEpoch) error {
	here := f.clock.epoch()
	old := kvstore.NewTable()
	if err := f.loadRows("select name, entry from entries", nil, old, make(map[string][]byte)); err != nil {
		return err
	}
	now := f.now()
	for name, e := range old.Names {
		var holders []kvstore.Holder
		for _, p := range e.Queue {
			if f.liveness.stateOf(p.Owner) == kvstore.Alive {
				return f.newError(otherMachine, nil)
			}
		}
		for _, h := range e.Holders {
			lives := f.liveness.stateOf(h.Owner)
			if lives == kvstore.Alive {
				return f.newError(otherMachine, nil)
			}
			h.Expires += before.since - here.since
			if h.MinHoldUntil != 0 {
				h.MinHoldUntil += before.since - here.since
			}
			over := lives == kvstore.Dead && before.machine == here.machine && h.MinHoldUntil <= now.At
			if !over && h.Expires > now.At {
				holders = append(holders, h)
			}
		}
		e.Holders, e.Queue = holders, nil
		if len(holders) == 0 {
			delete(old.Names, name)
		}
	}
	if err := f.exec("delete from entries"); err != nil {
		return err
	}
	if err := f.save(old, nil, now.At); err != nil {
		return err
	}
	return f.saveEpoch(here)
}

func (f *file) saveEpoch(e clockEpoch) error {
	return f.exec("update state set boot = ?, since = ?, machine = ?", e.boot, int64(e.since), e.machine)
}
