package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/goredisstore"
	"github.com/dibslock/dibs/goredisstore/redisurl"
	"github.com/dibslock/dibs/quorum"
	"github.com/dibslock/dibs/redisstore"
)

// An opened is the store that the flags and the environment name.
type opened struct {
	driver.Store
	location string // without credentials
	nodes    []node // the Redis servers: those of a quorum, or one
	closes   []func() error
}

// A node is one Redis server, which doctor can check.
type node struct {
	location string
	*redisstore.Store
}

func (o *opened) close() error {
	var errs []error
	for _, f := range o.closes {
		errs = append(errs, f())
	}
	return errors.Join(errs...)
}

var errNoStore = usageError{errors.New(`no store: pass one of
  --url redis://host:6379      or DIBS_URL=redis://host:6379
                               (also rediss://, redis+sentinel://, redis+cluster://, unix://;
                               three or more URLs: a quorum)
  --local                      or DIBS_URL=local
                               (a file of this user, for this host only)`)}

// storeURLs returns the URLs from the flags, or else from the environment.
func (a *app) storeURLs() ([]string, error) {
	switch {
	case a.local && len(a.urls) > 0:
		return nil, usage("--local and --url exclude each other")
	case a.local:
		return []string{"local:"}, nil
	case len(a.urls) > 0:
		return a.urls, nil
	}
	urls := strings.Fields(a.getenv("DIBS_URL"))
	if len(urls) == 0 {
		return nil, errNoStore
	}
	return urls, nil
}

// urlSource returns the flag or variable that storeURLs has read, for errors.
func (a *app) urlSource() string {
	if len(a.urls) > 0 {
		return "--url"
	}
	return "DIBS_URL"
}

// open opens the store. It does not wait for a server.
func (a *app) open() (*opened, error) {
	urls, err := a.storeURLs()
	if err != nil {
		return nil, err
	}
	o := new(opened)
	if path, ok := localPath(urls[0]); ok && len(urls) == 1 {
		return o, a.openLocal(o, path)
	}
	var stores []driver.Voter
	for _, u := range urls {
		if _, ok := localPath(u); ok {
			return nil, usage("a local file cannot be a node of a quorum")
		}
		s, err := a.openRedis(o, u)
		if err != nil {
			return nil, errors.Join(err, o.close())
		}
		stores = append(stores, s)
	}
	switch {
	case len(stores) > 1:
		q, err := quorum.Config{Longest: a.longestTTL}.New(stores...)
		if err != nil {
			return nil, errors.Join(usageError{fmt.Errorf("%s: %w", a.urlSource(), err)}, o.close())
		}
		o.Store = q
	case a.longestTTL != 0:
		return nil, errors.Join(usage("--longest needs a quorum: three or more --url"), o.close())
	default:
		o.Store = stores[0]
	}
	if err := checkDistinct(o.nodes); err != nil {
		return nil, errors.Join(err, o.close())
	}
	o.location = listOf(o.nodes)
	return o, nil
}

// listOf lists the servers with the node numbers that errors of a quorum use.
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

// checkDistinct rejects a quorum with two nodes on one server, even on different
// databases: if that server fails, two votes are gone.
func checkDistinct(nodes []node) error {
	for i, n := range nodes {
		for j, other := range nodes[:i] {
			if serverOf(n.location) == serverOf(other.location) {
				return usage("nodes %d and %d of the quorum are the same server: %s", j, i, n.location)
			}
		}
	}
	return nil
}

// serverOf returns a URL without its scheme and its database.
func serverOf(where string) string {
	_, server, _ := strings.Cut(where, "://")
	if i := strings.LastIndexAny(server, "/?"); i >= 0 {
		server = server[:i]
	}
	return server
}

// localPath parses local and local:PATH.
func localPath(url string) (path string, ok bool) {
	if url == "local" {
		return "", true
	}
	return strings.CutPrefix(url, "local:")
}

func (a *app) openRedis(o *opened, raw string) (driver.Voter, error) {
	u, err := redisurl.Parse(raw)
	if err != nil {
		return nil, usageError{fmt.Errorf("%s: %w", a.urlSource(), err)}
	}
	rdb, err := u.With(redisurl.Environment(a.getenv)).Open()
	if err != nil {
		return nil, err
	}
	o.closes = append(o.closes, rdb.Close)
	var options []goredisstore.Option
	if prefix, set := a.keyPrefix(); set {
		options = append(options, goredisstore.Prefix(prefix))
	}
	if a.replicas > 0 {
		options = append(options, goredisstore.WithReplicas(a.replicas, a.timeout/2))
	}
	s := goredisstore.New(rdb, options...)
	o.nodes = append(o.nodes, node{u.String(), s})
	return s, nil
}

// keyPrefix returns the prefix from --prefix or DIBS_PREFIX. set is true also for an
// empty prefix.
func (a *app) keyPrefix() (prefix string, set bool) {
	if a.prefix != "" || a.prefixSet {
		return a.prefix, true
	}
	for _, v := range a.environ {
		if prefix, set := strings.CutPrefix(v, "DIBS_PREFIX="); set {
			return prefix, true
		}
	}
	return "", false
}

// withTimeout limits an operation on the store to a.timeout.
func (a *app) withTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, a.timeout)
}
