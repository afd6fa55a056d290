// Package mysqlurl opens a mysqlstore.Store from a URL, for programs with such a URL in their
// configuration.
//
//	mysql://user:password@host:3306/database?tls=true&dibs_prefix=locks_
//
// mariadb:// is the same. The parameters are the same as in github.com/go-sql-driver/mysql, such as
// tls and timeout. Three parameters are for dibs:
//
//	dibs_prefix=TEXT  the prefix of the tables: mysqlstore.TablePrefix
//	ca=FILE           certificates, in PEM, that sign that of the server; it turns TLS on
//	socket=PATH       a Unix socket, instead of a host
//
// With ca or tls=true, the server's certificate must be for the URL's host. So both are forbidden
// with socket. ca is also forbidden with parameters that allow a connection without this check,
// such as tls=preferred.
//
// No error or text from this package contains a user or a password.
package mysqlurl

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"regexp"
	"strings"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/mysqlstore"
	"github.com/go-sql-driver/mysql"
)

const (
	form          = "want mysql://[user:password@]host[:port]/database[?parameters]"
	defaultPrefix = "dibs_"
)

// A URL identifies the database for the locks. It is immutable.
type URL struct {
	config *mysql.Config
	prefix string
}

// Is reports whether a text begins like a MariaDB or MySQL database's URL.
func Is(rawURL string) bool {
	scheme, _, ok := strings.Cut(rawURL, "://")
	scheme = strings.ToLower(scheme)
	return ok && (scheme == "mysql" || scheme == "mariadb")
}

// Parse parses a URL. The error matches driver.ErrInvalid. Parse reads the file named by ca.
func Parse(rawURL string) (*URL, error) {
	u, err := parse(rawURL)
	if err != nil {
		return nil, fmt.Errorf("%w MySQL URL: %w", driver.ErrInvalid, err)
	}
	return u, nil
}

// parse repeats no part of the URL in errors, because any may be a password.
func parse(rawURL string) (*URL, error) {
	if !Is(rawURL) {
		return nil, errors.New(form)
	}
	address, _, _ := strings.Cut(rawURL, "?")
	switch {
	case strings.Contains(rawURL, "#"):
		return nil, errors.New("unescaped #: write it as %23")
	case strings.Count(address, "@") > 1 || strings.Count(address, "/") > 3:
		return nil, errors.New("@ or / in a user or a password: write @ as %40 and / as %2F")
	}
	parts, err := url.Parse(rawURL)
	if err != nil {
		return nil, errors.New("malformed; " + form)
	}
	values, err := url.ParseQuery(parts.RawQuery)
	if err != nil {
		return nil, errors.New("malformed parameters: write % as %25 and ; as %3B")
	}
	hasCA := values.Has("ca")
	own := map[string]string{"dibs_prefix": defaultPrefix, "ca": "", "socket": ""}
	for name := range own {
		if values.Has(name) {
			own[name] = values.Get(name)
			values.Del(name)
		}
	}
	if err := mysqlstore.CheckTablePrefix(own["dibs_prefix"]); err != nil {
		return nil, errors.New(strings.TrimPrefix(err.Error(), driver.ErrInvalid.Error()+" "))
	}
	config, err := configOf(values)
	if err != nil {
		return nil, err
	}
	config.DBName = strings.TrimPrefix(parts.Path, "/")
	if config.DBName == "" {
		return nil, errors.New("no database; " + form)
	}
	config.User = parts.User.Username()
	config.Passwd, _ = parts.User.Password()
	if err := setAddress(config, parts, own["socket"]); err != nil {
		return nil, err
	}
	if hasCA {
		if err := setCA(config, parts.Hostname(), own["ca"]); err != nil {
			return nil, err
		}
	}
	if t := config.TLS; config.Net == "unix" && t != nil && t.ServerName == "" && !t.InsecureSkipVerify {
		return nil, errors.New("TLS and a socket: the certificate of a server is for a host; want a host, or a socket without TLS")
	}
	return &URL{config: config, prefix: own["dibs_prefix"]}, nil
}

// configOf returns a configuration with the library's parameters.
func configOf(values url.Values) (*mysql.Config, error) {
	for name := range values {
		if strings.HasPrefix(name, "dibs_") {
			return nil, errors.New("unknown parameter: want dibs_prefix")
		}
	}
	const see = "see the documentation of github.com/go-sql-driver/mysql"
	if values.Has("strict") { // ParseDSN would panic
		return nil, errors.New("strict: the library has no such parameter; want sql_mode")
	}
	charset := values.Get("charset")
	if charset != "" && !regexp.MustCompile(`^\w+(,\w+)*$`).MatchString(charset) {
		return nil, errors.New("charset: want a name such as utf8mb4, or several with a comma between them")
	}
	values.Del("charset")
	query := values.Encode()
	if charset != "" {
		query += "&charset=" + charset // the library does not decode it
	}
	// With any address but a socket's, ParseDSN would set the name that TLS verifies.
	config, err := mysql.ParseDSN("unix(any)/?" + query)
	if err != nil {
		return nil, errors.New("invalid parameter: " + see)
	}
	config.InterpolateParams = true
	config.Logger = &mysql.NopLogger{} // each error is also returned
	if _, err := mysql.NewConnector(config); err != nil {
		return nil, errors.New("collation: the library does not allow it with interpolateParams, which dibs sets; " + see)
	}
	return config, nil
}

func setAddress(config *mysql.Config, parts *url.URL, socket string) error {
	const defaultPort = "3306"
	switch {
	case socket != "" && parts.Host != "":
		return errors.New("a host and a socket: want one of them")
	case socket != "":
		config.Net, config.Addr = "unix", socket
	case strings.Contains(parts.Host, ","):
		return errors.New("several hosts: want one; use a proxy or a virtual address")
	case strings.Contains(parts.Hostname(), ":") && !strings.HasPrefix(parts.Host, "["):
		return errors.New("malformed host: write an IPv6 address as [::1]")
	case parts.Hostname() == "":
		return errors.New("no host; " + form)
	default:
		config.Net, config.Addr = "tcp", net.JoinHostPort(parts.Hostname(), cmp.Or(parts.Port(), defaultPort))
	}
	return nil
}

// setCA turns TLS on, with the certificates in a file.
func setCA(config *mysql.Config, host, file string) error {
	switch {
	case file == "":
		return errors.New("ca: want a file")
	case config.Net == "unix":
		return errors.New("ca and a socket: the certificate of a server is for a host; want one of them")
	case config.AllowFallbackToPlaintext || config.TLSConfig != "" && config.TLSConfig != "true":
		return errors.New("ca and a parameter that permits a connection without its check; want ca alone, without tls and allowFallbackToPlaintext")
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("ca: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(text) {
		return fmt.Errorf("ca: %s has no certificate in PEM", file)
	}
	config.TLS = &tls.Config{MinVersion: tls.VersionTLS12, ServerName: host, RootCAs: roots}
	return nil
}

// Credentials contains a program's database user and password.
type Credentials struct{ Username, Password string }

// Environment returns the credentials that lookup, such as os.Getenv, returns for DIBS_USERNAME and
// DIBS_PASSWORD.
func Environment(lookup func(name string) string) Credentials {
	return Credentials{Username: lookup("DIBS_USERNAME"), Password: lookup("DIBS_PASSWORD")}
}

// With returns a copy of the URL that uses c where the URL lacks credentials. If the URL contains a
// password, c is not used. If the URL contains only a user, c's password is used.
func (u *URL) With(c Credentials) *URL {
	if u.config.Passwd != "" {
		return u
	}
	with := &URL{config: u.config.Clone(), prefix: u.prefix}
	with.config.Passwd = c.Password
	with.config.User = cmp.Or(u.config.User, c.Username)
	return with
}

// Config returns a connection's configuration, which the caller can change. Pass it to
// mysql.NewConnector. Nothing is logged, because each error is also returned.
func (u *URL) Config() *mysql.Config { return u.config.Clone() }

// Options returns the store's options.
func (u *URL) Options() []mysqlstore.Option {
	return []mysqlstore.Option{mysqlstore.TablePrefix(u.prefix)}
}

// TablePrefix returns the tables' prefix.
func (u *URL) TablePrefix() string { return u.prefix }

// String returns the host, the database and the prefix, without credentials.
func (u *URL) String() string {
	host := url.URL{Scheme: "mysql", Host: u.config.Addr} // it escapes an IPv6 zone
	text := host.String() + "/" + url.PathEscape(u.config.DBName)
	query := url.Values{}
	if u.config.Net == "unix" {
		text = "mysql:///" + url.PathEscape(u.config.DBName)
		query.Set("socket", u.config.Addr)
	}
	if u.prefix != defaultPrefix {
		query.Set("dibs_prefix", u.prefix)
	}
	if len(query) > 0 {
		text += "?" + query.Encode()
	}
	return text
}
