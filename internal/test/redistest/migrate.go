package redistest

import (
	"context"
	"fmt"
	"strconv"
)

// A Migration moves a slot. While it is open, From serves its remaining keys and replies ASK for
// all others, and To serves a command after ASKING.
type Migration struct {
	Slot     int
	From, To *Server

	cluster *Cluster
}

// OpenSlot starts to move a slot to another master: first To is set to IMPORTING, then
// From to MIGRATING. No key moves yet.
func (c *Cluster) OpenSlot(slot int, to *Server) (*Migration, error) {
	if _, err := c.shardOf(to); err != nil {
		return nil, err
	}
	from, err := c.MasterOf(slot)
	if err != nil {
		return nil, err
	}
	if from == to {
		return nil, fmt.Errorf("redistest: slot %d is already on %s", slot, to.Addr())
	}
	m := &Migration{Slot: slot, From: from, To: to, cluster: c}
	if err := m.set(to, "IMPORTING", c.ids[from]); err != nil {
		return nil, err
	}
	if err := m.set(from, "MIGRATING", c.ids[to]); err != nil {
		return nil, err
	}
	return m, nil
}

// Move moves some keys in the slot with their TTLs. It ignores missing keys.
func (m *Migration) Move(keys ...string) error {
	if len(keys) == 0 {
		return nil
	}
	args := []string{"MIGRATE", "127.0.0.1", strconv.Itoa(m.To.port), "", "0", "5000"}
	if password := password(m.To.args); password != "" {
		args = append(args, "AUTH", password)
	}
	args = append(append(args, "KEYS"), keys...)
	return m.cmd(m.From, args...)
}

// Finish moves the remaining keys and assigns the slot to To: first on To, so the slot always has a
// master, then on From and the other masters. Replicas learn about it from their masters; see
// WaitSettled. After an error the slot is still open, and Finish can be called again.
func (m *Migration) Finish() error {
	for {
		keys, err := m.remaining()
		if err != nil {
			return err
		}
		if len(keys) == 0 {
			return m.assign()
		}
		if err := m.Move(keys...); err != nil {
			return err
		}
	}
}

// remaining returns some keys remaining on From.
func (m *Migration) remaining() ([]string, error) {
	value, err := m.From.Cmd("CLUSTER", "GETKEYSINSLOT", strconv.Itoa(m.Slot), "100")
	if err != nil {
		return nil, m.explain(m.From, err)
	}
	items, _ := value.([]any)
	var keys []string
	for _, item := range items {
		keys = append(keys, fmt.Sprint(item))
	}
	return keys, nil
}

func (m *Migration) assign() error {
	masters, err := m.cluster.masters()
	if err != nil {
		return err
	}
	for _, s := range append([]*Server{m.To, m.From}, masters...) {
		if err := m.set(s, "NODE", m.cluster.ids[m.To]); err != nil {
			return err
		}
	}
	return nil
}

// masters returns the running masters.
func (c *Cluster) masters() (masters []*Server, err error) {
	for _, s := range runningServers(c.nodes) {
		v, err := s.view(context.Background())
		if err != nil {
			return nil, err
		}
		if v.myself().isMaster() {
			masters = append(masters, s)
		}
	}
	return masters, nil
}

func (m *Migration) set(s *Server, what, id string) error {
	return m.cmd(s, "CLUSTER", "SETSLOT", strconv.Itoa(m.Slot), what, id)
}

func (m *Migration) cmd(s *Server, args ...string) error {
	if _, err := s.Cmd(args...); err != nil {
		return m.explain(s, err)
	}
	return nil
}

func (m *Migration) explain(s *Server, err error) error {
	return fmt.Errorf("redistest: slot %d from %s to %s: %s: %w", m.Slot, m.From.Addr(), m.To.Addr(), s.Addr(), err)
}

// Migrate moves slots with all their keys to another master, one after the other, while the cluster
// serves. It stops at the first error and leaves the current slot open.
func (c *Cluster) Migrate(to *Server, slots ...int) error {
	for _, slot := range slots {
		m, err := c.OpenSlot(slot, to)
		if err != nil {
			return err
		}
		if err := m.Finish(); err != nil {
			return err
		}
	}
	return nil
}
