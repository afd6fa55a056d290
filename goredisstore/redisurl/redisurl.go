// Package redisurl creates a go-redis client from a URL, so that all programs with dibs accept the
// same URLs:
//
//	redis://[user:password@]host[:port][/db]
//	unix://[user:password@]/path/of/the/socket[?db=n]
//	redis+sentinel://[user:password@]host[:port][,host[:port]…]/master[/db]
//	redis+cluster://[user:password@]host[:port][,host[:port]…]
//
// The schemes rediss, rediss+sentinel and rediss+cluster use TLS, also to the sentinels.
// The default port is 6379, and 26379 for sentinels. An IPv6 address is in brackets.
//
// A user needs a password; if the server needs none, use any. A password without a user belongs to
// the user "default". In user and password, write / as %2F, ? as %3F, # as %23 and % as %25, and in
// the user : as %3A. With Sentinel, user and password are for the master and its replicas, not for
// the sentinels.
//
// Parameters follow after a ?, separated by &, each at most once. A + in a value is a plus, not a
// space. The parameters are the same as in redis.ParseURL, such as client_name, pool_size and
// read_timeout, except skip_verify. A time limit must be positive, and no value may be empty.
// Further parameters:
//
//	db                    database number, as in the path
//	ca                    file with the trusted certificates, instead of the system's
//	cert, key             files with the client's certificate and its key
//	server_name           name expected in the servers' certificates, instead of the host
//	insecure_skip_verify  true: accept any certificate
//	proxy                 true: a proxy such as twemproxy, Codis or Envoy is in front of the servers
//	hidden_cluster        true: the address is in front of a cluster, and hides its nodes
//	sentinel_username, sentinel_password
//
// With proxy or hidden_cluster, pass the result of Options to goredisstore.New.
//
// In sentinel_username and sentinel_password, also write @ as %40 and & as %26.
//
// An error repeats only the URL's names of parameters and files. So it never contains a user or a
// password.
package redisurl

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/goredisstore"
	"github.com/dibslock/dibs/redisstore"
	"github.com/redis/go-redis/v9"
)

// A URL is a parsed Redis address, with its settings. It is immutable, and printing it shows no
// credentials.
type URL struct {
	scheme        scheme
	hasDB         bool                    // the URL names a database
	options       *redis.UniversalOptions // a pointer, because fmt does not print what it points to
	files         files
	proxy         bool
	hiddenCluster bool
}

// Parse parses a URL. It performs no I/O. Its errors match dibs.ErrInvalid.
func Parse(rawURL string) (*URL, error) {
	u, err := parse(rawURL)
	if err != nil {
		return nil, invalid(err)
	}
	return u, nil
}

func invalid(err error) error { return fmt.Errorf("%w Redis URL: %w", driver.ErrInvalid, err) }

// Credentials are a program's users and passwords for a Redis and for its sentinels.
type Credentials struct {
	Username, Password                 string
	SentinelUsername, SentinelPassword string
}

// Environment reads the credentials with lookup, for example os.Getenv, from the variables
// DIBS_USERNAME, DIBS_PASSWORD, DIBS_SENTINEL_USERNAME and DIBS_SENTINEL_PASSWORD. All dibs
// programs use these names.
func Environment(lookup func(name string) string) Credentials {
	return Credentials{
		Username:         lookup("DIBS_USERNAME"),
		Password:         lookup("DIBS_PASSWORD"),
		SentinelUsername: lookup("DIBS_SENTINEL_USERNAME"),
		SentinelPassword: lookup("DIBS_SENTINEL_PASSWORD"),
	}
}

// With returns a copy of the URL that uses c where the URL lacks credentials. If the URL contains a
// password, neither user nor password from c are used, because a password belongs to a single user.
// If the URL contains only a user, c's password is used. The same applies to the credentials for
// the sentinels.
func (u *URL) With(c Credentials) *URL {
	options := *u.options
	fill(&options.Username, &options.Password, c.Username, c.Password)
	if u.scheme.kind == sentinel {
		fill(&options.SentinelUsername, &options.SentinelPassword, c.SentinelUsername, c.SentinelPassword)
	}
	with := *u
	with.options = &options
	return &with
}

func fill(username, password *string, otherUsername, otherPassword string) {
	if *password != "" {
		return
	}
	*password = otherPassword
	if *username == "" {
		*username = otherUsername
	}
}

// Open returns a new client, which the caller must close. It reads the certificate files once. If
// they are unusable, the error matches dibs.ErrInvalid. Open does not wait for a server. With
// min_idle_conns the client starts to connect in the background.
func (u *URL) Open() (redis.UniversalClient, error) {
	options, err := u.complete()
	if err != nil {
		return nil, invalid(err)
	}
	return redis.NewUniversalClient(options), nil
}

// Options returns the store options implied by the URL's parameters proxy and hidden_cluster.
// Without these options locks are unsafe.
func (u *URL) Options() []redisstore.Option {
	switch {
	case u.proxy:
		return []redisstore.Option{redisstore.Proxy()}
	case u.hiddenCluster:
		return []redisstore.Option{redisstore.HiddenCluster()}
	}
	return nil
}

// complete returns the options with the files' content. It also checks the credentials, which Parse
// cannot, because With can add some.
func (u *URL) complete() (*redis.UniversalOptions, error) {
	options := *u.options
	// go-redis would not authenticate at all, without an error.
	if options.Username != "" && options.Password == "" {
		return nil, errors.New("user without a password: want user:password@, or :password@ for the default user")
	}
	if options.SentinelUsername != "" && options.SentinelPassword == "" {
		return nil, errors.New("sentinel_username without sentinel_password")
	}
	if u.scheme.tls {
		config, err := u.files.load(options.TLSConfig)
		if err != nil {
			return nil, err
		}
		options.TLSConfig = config
	}
	if u.proxy {
		setProxy(&options)
	}
	return &options, nil
}

// setProxy sets a client's options so that it sends a proxy only its user's commands, and AUTH.
func setProxy(o *redis.UniversalOptions) {
	const dialTimeout = 5 * time.Second // go-redis' default
	o.Protocol, o.DisableIdentity = 2, true
	o.Dialer = goredisstore.WithoutHello(redis.NewDialer(&redis.Options{
		DialTimeout: cmp.Or(o.DialTimeout, dialTimeout), TLSConfig: o.TLSConfig,
	}))
}

// String returns the scheme, the servers and the database, without credentials. Parse
// accepts the result.
func (u *URL) String() string {
	o, prefix := u.options, u.scheme.name+"://"
	// A percent sign is part of an IPv6 zone.
	hosts := strings.ReplaceAll(strings.Join(o.Addrs, ","), "%", "%25")
	db := strconv.Itoa(o.DB)
	switch u.scheme.kind {
	case socket:
		path := (&url.URL{Path: o.Addrs[0]}).EscapedPath()
		return prefix + escapeAt(path) + "?db=" + db
	case sentinel:
		return prefix + hosts + "/" + escapeAt(url.PathEscape(o.MasterName)) + "/" + db
	case cluster:
		return prefix + hosts
	default:
		return prefix + hosts + "/" + db
	}
}

// escapeAt escapes each @, which net/url does not escape in a path.
func escapeAt(path string) string { return strings.ReplaceAll(path, "@", "%40") }
