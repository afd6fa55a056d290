package main

import (
	"fmt"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/zkstore"
	"github.com/dibslock/dibs/zkstore/zkurl"
)

func (f *storeFlags) openZooKeeper(o *opened, raw string) error {
	u, err := zkurl.Parse(raw)
	if err != nil {
		return usageError{fmt.Errorf("%s: %w", f.urlSource(), err)}
	}
	var options []zkstore.Option
	if prefix, set := f.keyPrefix(); set {
		if u.Prefix() != "" {
			return usage("--prefix or DIBS_PREFIX, and a path in the URL, are both the path of the znodes in ZooKeeper: pass one of them")
		}
		options = append(options, zkstore.Prefix(prefix))
	}
	if err := f.checkOneStore("ZooKeeper writes each lock to a majority of its servers"); err != nil {
		return err
	}
	s := u.With(zkurl.Environment(f.env.get)).Open(options...)
	o.Full, o.location, o.reach = driver.Complete(s), u.String(), u.Reach
	o.nodes = []node{{o.location, s}}
	o.closes = append(o.closes, s.Close)
	return nil
}
