package main

import (
	"github.com/dibslock/dibs/cmd/dibs/internal/supervise"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/localstore"
)

// openLocal opens the file at path, or --local's default file if path is empty.
func (f *storeFlags) openLocal(o *opened, path string, l lifetime) (err error) {
	if f.replicas > 0 || f.longestTTL > 0 || f.prefixSet || f.mixed || f.redisson {
		return usage("--replicas, --max-ttl, --prefix, --shared-keys and --redisson need Redis: a local file does not support them")
	}
	if path == "" {
		if path, err = localstore.Path(f.env.get); err != nil {
			return err
		}
	}
	var options []localstore.Option
	if l == untilTTL {
		options = append(options, localstore.KeepUntilTTL())
	}
	s, err := localstore.Open(path, options...)
	if err != nil {
		return err
	}
	o.Full, o.location = driver.Complete(s), "local:"+path
	o.closes = append(o.closes, s.Close)
	if l == withCommand {
		return inheritAliveFile(s)
	}
	return nil
}

// inheritAliveFile lets the watchdog and the command inherit the open file that marks the lock's
// owner as alive. If dibs is killed, its lock is therefore free as soon as all these processes are
// dead, and not before.
func inheritAliveFile(s *localstore.Store) error {
	f, err := s.LivenessFile()
	if f == nil || err != nil {
		return err
	}
	defer f.Close()
	_, err = supervise.Inherit(f)
	return err
}
