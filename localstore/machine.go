package localstore

import (
	"os"
	"strings"
	"time"

	"github.com/dibslock/dibs/internal/locktable"
)

// machine identifies this machine. It does not change with a restart.
func machine() string {
	if id, err := os.ReadFile("/etc/machine-id"); err == nil && len(strings.TrimSpace(string(id))) > 0 {
		return strings.TrimSpace(string(id))
	}
	host, _ := os.Hostname()
	return host
}

// A clockEpoch identifies the clock by which the entries of a file end: its boot, its
// machine, and the wall-clock time of its zero.
type era struct {
	boot    string
	since   time.Duration // wall-clock time
	machine string
}

// epoch returns the epoch of this process.
func (c clock) current() era {
	return era{c.boot, time.Duration(time.Now().UnixNano()) - c.now(), machine()}
}

// difference returns how far two readings of the epoch's wall-clock time differ.
func (e era) apart(other era) time.Duration { return (e.since - other.since).Abs() }

// sameClock reports whether two epochs use one clock. Some containers have their own boot
// ID, but use the kernel's clock like all others.
func (e era) same(other era) bool {
	const near = time.Second
	return e.boot == other.boot || e.apart(other) < near
}

// convert converts the entries of another epoch to this one: the machine was restarted,
// or another machine uses the file. It deletes nothing that may be valid:
//   - if an owner is alive, the file belongs to its epoch, and convert returns an error;
//   - if an owner of this machine is dead, its leases ended with the restart;
//   - all other leases end by the wall clock.
func (f *file) settle(before era) error {
	here := f.clock.current()
	old := locktable.New()
	if err := f.each("select name, entry from entries", nil, old, make(map[string][]byte)); err != nil {
		return err
	}
	now := f.now()
	for name, e := range old.Names {
		var holders []locktable.Holder
		for _, p := range e.Queue {
			if f.life.of(p.Owner) == alive {
				return f.fault(elsewhere, nil)
			}
		}
		for _, h := range e.Holders {
			lives := f.life.of(h.Owner)
			if lives == alive {
				return f.fault(elsewhere, nil)
			}
			h.Expires += before.since - here.since
			if h.MinHoldUntil != 0 {
				h.MinHoldUntil += before.since - here.since
			}
			over := lives == ended && before.machine == here.machine && h.MinHoldUntil <= now.At
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
	if err := f.save(old, nil); err != nil {
		return err
	}
	return f.setEra(here)
}

func (f *file) setEra(e era) error {
	return f.exec("update state set boot = ?, since = ?, machine = ?", e.boot, int64(e.since), e.machine)
}
