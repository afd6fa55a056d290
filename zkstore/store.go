package zkstore

// A Store is a driver.Store on ZooKeeper. It is safe for concurrent use.
type Store struct {
	servers []string
	config  config
}

// New returns a Store on the servers, as in "host:2181". New does no I/O. Close the Store after the
// clients of dibs.
func New(servers []string, options ...Option) *Store {
	s := &Store{servers: servers}
	for _, o := range options {
		if o.apply != nil {
			o.apply(&s.config)
		}
	}
	return s
}

// Close ends the connections. Leases that are still held end with their TTL.
func (s *Store) Close() error { return nil }
