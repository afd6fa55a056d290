package main

import (
	"fmt"
	"io"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/etcdstore"
	"github.com/dibslock/dibs/etcdstore/etcdurl"
	"google.golang.org/grpc/grpclog"
)

// discardGRPCLog drops gRPC's log lines: failures are returned as errors.
func discardGRPCLog() { grpclog.SetLoggerV2(grpclog.NewLoggerV2(io.Discard, io.Discard, io.Discard)) }

func (f *storeFlags) openEtcd(o *opened, raw string) error {
	u, err := etcdurl.Parse(raw)
	if err != nil {
		return usageError{fmt.Errorf("%s: %w", f.urlSource(), err)}
	}
	options := u.Options()
	if prefix, set := f.keyPrefix(); set {
		if u.Prefix() != "" {
			return usage("--prefix or DIBS_PREFIX, and a path in the URL, are both the prefix of the keys in etcd: pass one of them")
		}
		options = append(options, etcdstore.Prefix(prefix))
	}
	if err := f.checkOneStore("etcd writes each lock to a majority of its members"); err != nil {
		return err
	}
	o.reach = u.Reach
	cli, err := u.With(etcdurl.Environment(f.env.get)).Open()
	if err != nil {
		return err
	}
	s := etcdstore.New(cli, options...)
	o.Full, o.location = driver.Complete(s), u.String()
	o.nodes = []node{{o.location, s}}
	o.closes = append(o.closes, cli.Close)
	return nil
}
