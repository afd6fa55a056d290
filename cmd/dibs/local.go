package main

import "github.com/dibslock/dibs/localstore"

// openLocal opens the file of --local, or the one that local: names.
func (a *app) openLocal(o *opened, path string) (err error) {
	if a.replicas > 0 || a.longest > 0 || a.prefixSet {
		return usage("--replicas, --longest and --prefix are for Redis, not for a local file")
	}
	if path == "" {
		if path, err = localstore.Path(a.getenv); err != nil {
			return err
		}
	}
	s, err := localstore.Open(path)
	if err != nil {
		return err
	}
	o.Store, o.where = s, "local:"+path
	o.closes = append(o.closes, s.Close)
	return nil
}
