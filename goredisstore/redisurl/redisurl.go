// Package redisurl makes a go-redis client of one URL, so that every program that
// uses dibs reaches a Redis in the same way:
//
//	redis://[user:password@]host[:port][/db]
//	unix://[user:password@]/path/of/the/socket[?db=n]
//	redis+sentinel://[user:password@]host[:port][,host[:port]…]/master[/db]
//	redis+cluster://[user:password@]host[:port][,host[:port]…]
//
// With rediss in place of redis it is the same over TLS, to sentinels too. The port is 6379 if there
// is none, and 26379 for sentinels. An IPv6 address stands in brackets.
//
// A user has a password; for one that needs none any will do. A password without
// a user is that of the user default. In both, write / as %2F, ? as %3F, # as %23,
// % as %25, and a : in the user as %3A. With sentinels they are those of the
// master and its replicas, not those of the sentinels.
//
// Settings follow after a ?, separated by &, each at most once. What is not set is
// as go-redis has it. A + in them is a plus, not a space.
//
//	db                    as in the path
//	client_name           which CLIENT LIST shows
//	protocol              2 or 3
//	pool_size             connections to one server
//	min_idle_conns        how many of these are kept open
//	pool_timeout          the wait for one, such as 500ms or 5s
//	dial_timeout, read_timeout, write_timeout
//	ca                    file with the certificates to trust, in place of the system's
//	cert, key             files with this program's certificate and its key
//	server_name           whom the servers' certificates have to name, if not their hosts
//	insecure_skip_verify  true: believe any certificate
//	sentinel_username, sentinel_password
//
// In sentinel_username and sentinel_password, write also @ as %40 and & as %26.
//
// An error of this package is one line. It repeats nothing of the URL but names of
// parameters and files: so it tells no user and no password, whatever is wrong.
package redisurl

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/dibslock/dibs/driver"
	"github.com/redis/go-redis/v9"
)

// A URL says where a Redis is, and how to talk to it. It does not change, and
// printing it shows no credentials.
type URL struct {
	scheme  scheme
	hasDB   bool                    // the URL names one
	options *redis.UniversalOptions // behind a pointer, where printing does not look
	files   files
}

// Parse reads a URL. It does no I/O. Its errors are dibs.ErrInvalid.
func Parse(rawURL string) (*URL, error) {
	u, err := parse(rawURL)
	if err != nil {
		return nil, invalid(err)
	}
	return u, nil
}

func invalid(err error) error { return fmt.Errorf("%w Redis URL: %w", driver.ErrInvalid, err) }

// Credentials are who a program is to a Redis, and to the sentinels that know
// where it is.
type Credentials struct {
	Username, Password                 string
	SentinelUsername, SentinelPassword string
}

// Environment looks the credentials up under the names that all programs of dibs
// have for them, with os.Getenv or the like: DIBS_USERNAME, DIBS_PASSWORD,
// DIBS_SENTINEL_USERNAME and DIBS_SENTINEL_PASSWORD.
func Environment(lookup func(name string) string) Credentials {
	return Credentials{
		Username:         lookup("DIBS_USERNAME"),
		Password:         lookup("DIBS_PASSWORD"),
		SentinelUsername: lookup("DIBS_SENTINEL_USERNAME"),
		SentinelPassword: lookup("DIBS_SENTINEL_PASSWORD"),
	}
}

// With returns the URL with credentials for where it has none. What stands in the
// URL wins: with a password there, neither password nor user are taken from c, as
// a password is one user's; with a user only, the password is.
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

// Open returns a client, which the caller closes. It reads the files that the URL
// names, once, and fails if they are not as they should be. It waits for no
// server; only with min_idle_conns the client begins to connect by itself.
func (u *URL) Open() (redis.UniversalClient, error) {
	options, err := u.complete()
	if err != nil {
		return nil, invalid(err)
	}
	return redis.NewUniversalClient(options), nil
}

// complete returns the options with what Parse could not know.
func (u *URL) complete() (*redis.UniversalOptions, error) {
	options := *u.options
	// go-redis would say nothing, and not authenticate at all.
	if options.Username != "" && options.Password == "" {
		return nil, errors.New("a user without a password; want user:password@, or :password@ for the user default")
	}
	if options.SentinelUsername != "" && options.SentinelPassword == "" {
		return nil, errors.New("a sentinel_username without a sentinel_password")
	}
	if u.scheme.tls {
		config, err := u.files.load(options.TLSConfig)
		if err != nil {
			return nil, err
		}
		options.TLSConfig = config
	}
	return &options, nil
}

// String returns what can be shown to anybody: the scheme, where the servers are,
// and the database. Parse accepts it.
func (u *URL) String() string {
	o, prefix := u.options, u.scheme.name+"://"
	// The percent sign is that of an IPv6 zone.
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

// escapeAt does what net/url leaves: to it an @ in a path is one as any other sign.
func escapeAt(path string) string { return strings.ReplaceAll(path, "@", "%40") }
