package main

import "github.com/dibslock/dibs/localstore"

// openLocal opens the file of --local, or the one that local: names.
func (a *app) openLocal(o *opened, path string) (err error) {
	if a.replicas > 0 || a.longestTTL > 0 || a.prefixSet {
		return usage("--replicas, --longest and --prefix are for Redis, not for a local file")
	}
	if path == "" {
		if path, err = localstore.Path(a.getenv); err != nil {
			return err
		}
	}
	var options []localstore.Option
	if a.locksOutlive {
		options = append(options, localstore.Outlive())
	}
	s, err := localstore.Open(path, options...)
	if err != nil {
		return err
	}
	o.Store, o.location = s, "local:"+path
	o.closes = append(o.closes, s.Close)
	if a.runsCommand {
		return inheritAliveFile(s)
	}
	return nil
}

// bequeath lets the guard and the command inherit the file that shows that the owner of the
// lock lives: the lock of a killed dibs is free when nothing of them is left, and not before.
func inheritAliveFile(s *localstore.Store) error {
	f, err := s.Alive()
	if f == nil || err != nil {
		return err
	}
	defer f.Close()
	_, err = inherited(f)
	return err
}
