package main

import "github.com/dibslock/dibs/localstore"

// openLocal opens the file at path, or the default file of --local if path is empty.
func (a *app) openLocal(o *opened, path string) (err error) {
	if a.replicas > 0 || a.longestTTL > 0 || a.prefixSet {
		return usage("--replicas, --longest and --prefix need Redis: a local file does not support them")
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

// inheritAliveFile lets the watchdog and the command inherit the open file that marks the
// owner of the lock as alive. The lock of a killed dibs is therefore free as soon as all
// of these processes are dead, and not before.
func inheritAliveFile(s *localstore.Store) error {
	f, err := s.Alive()
	if f == nil || err != nil {
		return err
	}
	defer f.Close()
	_, err = inherited(f)
	return err
}
