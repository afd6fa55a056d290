package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/dashboard/watch"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/etcdstore/etcdurl"
	"github.com/dibslock/dibs/goredisstore"
	"github.com/dibslock/dibs/goredisstore/redisurl"
	"github.com/dibslock/dibs/quorum"
	"github.com/dibslock/dibs/redisstore"
	"github.com/dibslock/dibs/zkstore/zkurl"
)

// An opened is the store that the flags and the environment name.
type opened struct {
	*driver.Full
	location string        // without credentials
	proxied  bool          // the URL says that there is a proxy in front of the servers
	timeout  time.Duration // for each operation
	nodes    []node        // a quorum's servers, or a single server; none for a local file
	database *database     // nil unless the store is in a database
	closes   []func() error

	reach func(context.Context) error // explains why no server replies; nil if errors of the store do
}

// A node is a server that doctor can check.
type node struct {
	location string
	store    driver.Store
}

func (o *opened) close() error {
	var errs []error
	for _, f := range o.closes {
		errs = append(errs, f())
	}
	return errors.Join(errs...)
}

// whySilent returns why no server can be reached, or nil if that is not known.
func (o *opened) whySilent() error {
	if o.reach == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), o.timeout)
	defer cancel()
	return o.reach(ctx)
}

// poller returns a reader for the store's names.
func (o *opened) poller() watch.Poller { return watch.Poller{Store: o, Timeout: o.timeout} }

// client returns a Client on the store.
func (o *opened) client(options ...dibs.Option) *dibs.Client {
	return dibs.New(o.Store, append([]dibs.Option{dibs.Timeout(o.timeout)}, options...)...)
}

// A lifetime says how long a subcommand's locks are valid.
type lifetime int

const (
	untilExit   lifetime = iota // until this process exits
	untilTTL                    // until they expire, even after this process has exited
	withCommand                 // until this process and its command have exited
)

var errNoStore = usageError{errors.New(`no store: pass one of
  --url redis://host:6379      or DIBS_URL=redis://host:6379
                               (also rediss://, redis+sentinel://, redis+cluster://, unix://;
                               three or more URLs: a quorum)
  --url postgres://host/db     or DIBS_URL=postgres://host/db
  --url mysql://host/db        or DIBS_URL=mysql://host/db
                               (after dibs migrate, which creates the tables)
  --url etcd://host1,host2     or DIBS_URL=etcd://host1,host2 (also etcds://)
  --url zk://host1,host2       or DIBS_URL=zk://host1,host2 (also zks://)
  --local                      or DIBS_URL=local
                               (a file of this user, for this host only)`)}

// open opens the store. It does not wait for a server.
func (f *storeFlags) open(l lifetime) (*opened, error) {
	urls, err := f.storeURLs()
	if err != nil {
		return nil, err
	}
	o := &opened{timeout: f.timeout}
	if len(urls) == 1 {
		if path, ok := localPath(urls[0]); ok {
			return o, f.openLocal(o, path, l)
		}
		if open, ok := openerOf(urls[0]); ok {
			return o, f.openDatabase(o, open, urls[0])
		}
		if etcdurl.Is(urls[0]) {
			return o, f.openEtcd(o, urls[0])
		}
		if zkurl.Is(urls[0]) {
			return o, f.openZooKeeper(o, urls[0])
		}
	}
	if f.redisson && len(urls) > 1 {
		return nil, usage("--redisson needs one Redis, with Sentinel or a cluster if you like: Redisson has no such quorum")
	}
	var stores []driver.Voter
	for _, u := range urls {
		if _, ok := localPath(u); ok {
			return nil, usage("a local file cannot be a node of a quorum")
		}
		if _, ok := openerOf(u); ok {
			return nil, usage("a database cannot be a node of a quorum")
		}
		if etcdurl.Is(u) {
			return nil, usage("etcd cannot be a node of a quorum: write its members in one URL, as in etcd://host1,host2,host3")
		}
		if zkurl.Is(u) {
			return nil, usage("ZooKeeper cannot be a node of a quorum: write its servers in one URL, as in zk://host1,host2,host3")
		}
		s, err := f.openRedis(o, u)
		if err != nil {
			return nil, errors.Join(err, o.close())
		}
		stores = append(stores, s)
	}
	switch {
	case len(stores) > 1:
		q, err := quorum.New(stores, quorum.MaxTTL(cmp.Or(f.longestTTL, quorum.DefaultMaxTTL)))
		if err != nil {
			return nil, errors.Join(usageError{fmt.Errorf("%s: %w", f.urlSource(), err)}, o.close())
		}
		o.Full = driver.Complete(q)
		o.closes = append([]func() error{q.Close}, o.closes...) // before its nodes
	case f.longestTTL != 0:
		return nil, errors.Join(usage("--max-ttl needs a quorum: three or more --url"), o.close())
	default:
		o.Full = driver.Complete(stores[0])
	}
	if err := checkDistinct(o.nodes, net.DefaultResolver.LookupHost); err != nil {
		return nil, errors.Join(err, o.close())
	}
	o.location = listOf(o.nodes)
	return o, nil
}

// listOf lists the servers with the node numbers used in a quorum's errors.
func listOf(nodes []node) string {
	if len(nodes) == 1 {
		return nodes[0].location
	}
	var all []string
	for i, n := range nodes {
		all = append(all, fmt.Sprintf("%s (node %d)", n.location, i))
	}
	return strings.Join(all, ", ")
}

// localPath parses local and local:PATH.
func localPath(url string) (path string, ok bool) {
	if url == "local" {
		return "", true
	}
	return strings.CutPrefix(url, "local:")
}

// otherSchemes lists other stores' URLs, if a URL's scheme is unknown.
func otherSchemes(err error) string {
	if strings.Contains(err.Error(), "unknown scheme") {
		return "; or postgres:// or mysql:// for a database; or etcd:// or zk://"
	}
	return ""
}

func (f *storeFlags) openRedis(o *opened, raw string) (driver.Voter, error) {
	u, err := redisurl.Parse(raw)
	if err != nil {
		return nil, usageError{fmt.Errorf("%s: %w%s", f.urlSource(), err, otherSchemes(err))}
	}
	rdb, err := u.With(redisurl.Environment(f.env.get)).Open()
	if err != nil {
		return nil, err
	}
	o.closes = append(o.closes, rdb.Close)
	options := u.Options()
	o.proxied = len(options) > 0
	if prefix, set := f.keyPrefix(); set {
		options = append(options, redisstore.Prefix(prefix))
	}
	if f.replicas > 0 {
		options = append(options, redisstore.WithReplicas(f.replicas, f.timeout/2))
	}
	if f.mixed {
		options = append(options, redisstore.SharedKeys())
	}
	if f.redisson {
		options = append(options, redisstore.Redisson())
	}
	s := goredisstore.New(rdb, options...)
	o.nodes = append(o.nodes, node{u.String(), s})
	return s, nil
}
