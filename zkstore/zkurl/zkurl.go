// Package zkurl opens a zkstore.Store from a URL, for programs with such a URL in their
// configuration.
//
//	zk://user:password@host1:2181,host2,host3/team/locks?format=kazoo
//	zks://host1,host2,host3:2281?ca=ca.pem&cert=client.pem&key=client.key
//
// zks:// is ZooKeeper over TLS. Write all servers with a comma between them. The default port is 2181.
// The user logs in with the scheme digest. The path is that of the znode with all locks,
// zkstore.Prefix: write a chroot first, as in /chroot/locks. Without a path, it is that of zkstore.
//
// All URLs have these parameters:
//
//	connect_timeout=5s      how long it can take to open a connection; the default is that of zkstore
//	format=curator|kazoo    how znodes are named, zkstore.Format; the default is curator
//	tick=2s                 the servers' tickTime, zkstore.Tick
//
// Only zks:// has these:
//
//	ca=FILE                    certificates, in PEM, that sign those of the servers
//	cert=FILE, key=FILE        the client's certificate and key, in PEM
//	server_name=NAME           the name in the servers' certificates, instead of the host
//	insecure_skip_verify=true  accept any certificate
//
// No error or text from this package contains a user or a password.
package zkurl

import (
	"cmp"
	"crypto/tls"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/zkstore"
)

// A URL identifies the ensemble for the locks. It is immutable.
type URL struct {
	username, password string

	hosts   []string // with ports
	path    string   // without its first slash; empty: the default
	tls     *tls.Config
	connect time.Duration // zero: the default
	format  zkstore.NodeFormat
	tick    time.Duration // zero: unknown
}

// Is reports whether a text begins like the URL of a ZooKeeper ensemble.
func Is(rawURL string) bool {
	_, _, ok := cutScheme(rawURL)
	return ok
}

// Parse parses a URL. The error matches driver.ErrInvalid. Parse reads the files named in the URL,
// such as ca.
func Parse(rawURL string) (*URL, error) {
	u, err := parse(rawURL)
	if err != nil {
		return nil, fmt.Errorf("%w ZooKeeper URL: %w", driver.ErrInvalid, err)
	}
	return u, nil
}

// Credentials contains a program's user and password for the scheme digest.
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

// Open returns a store, which the caller closes. Open waits for no server. The options come after
// those of the URL. Without both a user and a password, the store does not log in.
func (u *URL) Open(options ...zkstore.Option) *zkstore.Store {
	return zkstore.New(slices.Clone(u.hosts), slices.Concat(u.options(), options)...)
}

// options returns the options in the URL.
func (u *URL) options() []zkstore.Option {
	all := []zkstore.Option{zkstore.Format(u.format)}
	if u.path != "" {
		all = append(all, zkstore.Prefix(u.Prefix()))
	}
	if u.username != "" && u.password != "" {
		all = append(all, zkstore.Auth("digest", []byte(u.username+":"+u.password)))
	}
	if u.tick != 0 {
		all = append(all, zkstore.Tick(u.tick))
	}
	if u.tls != nil || u.connect != 0 {
		all = append(all, zkstore.Dial(u.dial))
	}
	return all
}

// dial opens a connection. TLS expects the name of the host in the server's certificate.
func (u *URL) dial(network, address string, timeout time.Duration) (net.Conn, error) {
	dialer := &net.Dialer{Timeout: cmp.Or(u.connect, timeout)}
	if u.tls == nil {
		return dialer.Dial(network, address)
	}
	return tls.DialWithDialer(dialer, network, address, u.tls)
}

// Prefix returns the path in the URL, or an empty text for the default.
func (u *URL) Prefix() string {
	if u.path == "" {
		return ""
	}
	return "/" + u.path
}

// String returns the hosts and the path, without credentials.
func (u *URL) String() string {
	scheme := "zk"
	if u.tls != nil {
		scheme = "zks"
	}
	text := scheme + "://" + strings.Join(u.hosts, ",")
	if u.path == "" {
		return text
	}
	segments := strings.Split(u.path, "/")
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
