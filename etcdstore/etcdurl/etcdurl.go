// Package etcdurl opens an etcdstore.Store from a URL, for programs with such a URL in their
// configuration.
//
//	etcd://user:password@host1:2379,host2,host3/team/locks?dial_timeout=3s
//	etcds://host1,host2,host3?ca=ca.pem&cert=client.pem&key=client.key
//
// etcds:// is etcd over TLS. Write several members with a comma between them. The default port is
// 2379. The path is the prefix of the keys, etcdstore.Prefix. A final slash is added if it is
// missing. For the prefix /locks/ write //locks. Without a path, the prefix is that of etcdstore.
//
// All URLs have a parameter:
//
//	dial_timeout=5s  how long it can take to open a connection
//
// Only etcds:// has these:
//
//	ca=FILE                    certificates, in PEM, that sign those of the servers
//	cert=FILE, key=FILE        the client's certificate and key, in PEM
//	server_name=NAME           the name in the servers' certificates, instead of the host
//	insecure_skip_verify=true  accept any certificate
//
// No error or text from this package contains a user or a password.
package etcdurl

import (
	"cmp"
	"crypto/tls"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/etcdstore"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
)

// A URL identifies the cluster for the locks. It is immutable.
type URL struct {
	username, password string

	hosts  []string // with ports
	prefix string   // empty: the default
	tls    *tls.Config
	dial   time.Duration
}

// Is reports whether a text begins like the URL of an etcd cluster.
func Is(rawURL string) bool {
	_, _, ok := cutScheme(rawURL)
	return ok
}

// Parse parses a URL. The error matches driver.ErrInvalid. Parse reads the files named in the URL,
// such as ca.
func Parse(rawURL string) (*URL, error) {
	u, err := parse(rawURL)
	if err != nil {
		return nil, fmt.Errorf("%w etcd URL: %w", driver.ErrInvalid, err)
	}
	return u, nil
}

// Credentials contains a program's etcd user and password.
type Credentials struct{ Username, Password string }

// Environment returns the credentials that lookup, such as os.Getenv, returns for DIBS_USERNAME and
// DIBS_PASSWORD.
func Environment(lookup func(name string) string) Credentials {
	return Credentials{Username: lookup("DIBS_USERNAME"), Password: lookup("DIBS_PASSWORD")}
}

// With returns a copy of the URL that uses c where the URL lacks credentials. If the URL contains a
// password, c is not used. If the URL contains only a user, c's password is used.
func (u *URL) With(c Credentials) *URL {
	if u.password != "" {
		return u
	}
	with := *u
	with.username, with.password = cmp.Or(u.username, c.Username), c.Password
	return &with
}

// Config returns a client's configuration, which the caller can change. Nothing is logged, because
// each error is also returned. A connection that does not reply for 13 s is closed. The client tries
// a server that is away again within 4 s.
//
// With a password, clientv3.New waits for a server, because it logs in. Open does not wait.
func (u *URL) Config() clientv3.Config {
	const silent, reply, pause = 10 * time.Second, 3 * time.Second, 3 * time.Second
	connect := grpc.ConnectParams{Backoff: backoff.DefaultConfig, MinConnectTimeout: u.dial}
	connect.Backoff.MaxDelay = pause // gRPC's own is two minutes, in which leases are lost
	scheme := "http://"
	if u.tls != nil {
		scheme = "https://"
	}
	c := clientv3.Config{
		Username: u.username, Password: u.password, TLS: u.tls.Clone(), DialTimeout: u.dial,
		DialKeepAliveTime: silent, DialKeepAliveTimeout: reply, Logger: zap.NewNop(),
		DialOptions: []grpc.DialOption{grpc.WithConnectParams(connect)},
	}
	if u.tls != nil && u.tls.ServerName != "" {
		c.DialOptions = append(c.DialOptions, grpc.WithAuthority(u.tls.ServerName)) // gRPC overwrites the name in TLS
	}
	for _, host := range u.hosts {
		c.Endpoints = append(c.Endpoints, scheme+host)
	}
	return c
}

// Open returns a client, which the caller closes. Open waits for no server: with a password, the
// client's first request logs in.
func (u *URL) Open() (*clientv3.Client, error) {
	c := u.Config()
	if c.Username == "" || c.Password == "" {
		return clientv3.New(c)
	}
	// The servers reject this token, and then the client logs in for a new token.
	c.Username, c.Password, c.Token = "", "", "none"
	cli, err := clientv3.New(c)
	if err != nil {
		return nil, err
	}
	cli.Username, cli.Password, cli.Token = u.username, u.password, ""
	return cli, nil
}

// Options returns the store's options.
func (u *URL) Options() []etcdstore.Option {
	if u.prefix == "" {
		return nil
	}
	return []etcdstore.Option{etcdstore.Prefix(u.prefix)}
}

// Prefix returns the prefix in the URL, or an empty text for the default.
func (u *URL) Prefix() string { return u.prefix }

// String returns the hosts and the prefix, without credentials.
func (u *URL) String() string {
	scheme := "etcd"
	if u.tls != nil {
		scheme = "etcds"
	}
	text := scheme + "://" + strings.Join(u.hosts, ",")
	if u.prefix == "" {
		return text
	}
	segments := strings.Split(u.prefix, "/")
	for i, segment := range segments {
		segments[i] = strings.ReplaceAll(url.PathEscape(segment), "@", "%40")
	}
	return text + "/" + strings.Join(segments, "/")
}

func (u *URL) addHost(host string) {
	if !slices.Contains(u.hosts, host) {
		u.hosts = append(u.hosts, host)
	}
}
