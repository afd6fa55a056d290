package localstore

import (
	"os"
	"strings"
	"time"

	"github.com/dibslock/dibs/internal/locktable"
)

// machine tells one machine from another, and stays the same when it is restarted.
func machine() string {
	if id, err := os.ReadFile("/etc/machine-id"); err == nil && len(strings.TrimSpace(string(id))) > 0 {
		return strings.TrimSpace(string(id))
	}
	host, _ := os.Hostname()
	return host
}

// An era is when, by the wall clock, and on which machine the clock began by which the entries
// of a file end.
type era struct {
	boot    string
	since   time.Duration // of the wall clock
	machine string
}

// current is the era of this process.
func (c clock) current() era {
	return era{c.boot, time.Duration(time.Now().UnixNano()) - c.now(), machine()}
}

// apart is by how much two readings of the wall clock differ that are meant to be one.
func (e era) apart(other era) time.Duration { return (e.since - other.since).Abs() }

// same reports whether two eras have one clock. Some containers have a boot id of their own on
// the kernel, and with the clock, of all others.
func (e era) same(other era) bool {
	const near = time.Second
	return e.boot == other.boot || e.apart(other) < near
}

// settle makes the file one of this era, if its entries are of another one: the machine was
// restarted, or another one uses the file. Nothing that may be alive is deleted. Who is seen to
// be alive has the file for himself. Who was of this machine, and is seen to be dead, was ended
// by the restart. Of all others the wall clock says when their leases end.
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
