package redisurl

import (
	"crypto/tls"
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"net/url"
	"regexp"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// kind is the setup kind for a URL.
type kind int

const (
	standalone kind = iota
	socket
	sentinel
	cluster
)

// scheme is a URL's first part and its meaning.
type scheme struct {
	name string
	kind kind
	tls  bool
}

var schemes = []scheme{
	{"redis", standalone, false},
	{"rediss", standalone, true},
	{"unix", socket, false},
	{"redis+sentinel", sentinel, false},
	{"rediss+sentinel", sentinel, true},
	{"redis+cluster", cluster, false},
	{"rediss+cluster", cluster, true},
}

// form returns the scheme's URL syntax.
func (s scheme) form() string {
	const hosts = "host[:port][,host[:port]…]"
	rest := map[kind]string{
		standalone: "host[:port][/db]",
		socket:     "/path[?db=n]",
		sentinel:   hosts + "/master[/db]",
		cluster:    hosts,
	}
	return s.name + "://[user:password@]" + rest[s.kind]
}

// parse parses a URL. go-redis parses only its parameters: it has no schemes for Sentinel and
// clusters, takes localhost for a missing host, and repeats its input in errors. The errors here
// repeat only parameter names, because any part of an invalid URL may be a password.
func parse(rawURL string) (*URL, error) {
	s, rest, err := cutScheme(rawURL)
	if err != nil {
		return nil, err
	}
	p, err := split(rest)
	if err != nil {
		return nil, fmt.Errorf("%w; want %s", err, s.form())
	}
	u := &URL{scheme: s, options: &redis.UniversalOptions{IsClusterMode: s.kind == cluster}}
	if s.tls {
		u.options.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	if err := u.setAddress(p); err != nil {
		return nil, fmt.Errorf("%w; want %s", err, s.form())
	}
	if err := u.setParameters(p.query); err != nil {
		return nil, err
	}
	return u, nil
}

func cutScheme(rawURL string) (s scheme, rest string, err error) {
	name, rest, found := strings.Cut(rawURL, "://")
	var names []string
	for _, s := range schemes {
		if found && strings.EqualFold(name, s.name) {
			return s, rest, nil
		}
		names = append(names, s.name+"://")
	}
	return scheme{}, "", fmt.Errorf("unknown scheme; want one of %s", strings.Join(names, ", "))
}

// parts are the parts after the scheme, still escaped.
type parts struct{ user, hosts, path, query string }

// split splits a URL into its parts. It is strict about their separators: an unexpected character
// most likely means that a part of the password was taken for another part.
func split(rest string) (p parts, err error) {
	if strings.IndexFunc(rest, func(r rune) bool { return r <= ' ' || r == 0x7f }) >= 0 {
		return p, errors.New("space or control character: write a space as %20")
	}
	if strings.Contains(rest, "#") {
		return p, errors.New("unescaped #: write it as %23")
	}
	rest, p.query, _ = strings.Cut(rest, "?")
	authority, path, slash := strings.Cut(rest, "/")
	if slash {
		p.path = "/" + path
	}
	if strings.Contains(p.path+p.query, "@") {
		return p, errors.New("@ after a / or ?: in a user or password write / as %2F and ? as %3F; elsewhere write @ as %40")
	}
	// The last @ ends the password, because no host contains it.
	if at := strings.LastIndexByte(authority, '@'); at >= 0 {
		p.user, authority = authority[:at], authority[at+1:]
	}
	p.hosts = authority
	return p, nil
}

// setAddress sets the options from everything before the parameters.
func (u *URL) setAddress(p parts) error {
	if err := u.setUser(p.user); err != nil {
		return err
	}
	if u.scheme.kind == socket {
		return u.setSocket(p.hosts, p.path)
	}
	if err := u.setHosts(strings.Split(p.hosts, ",")); err != nil {
		return err
	}
	return u.setPath(strings.TrimPrefix(p.path, "/"))
}

func (u *URL) setUser(text string) error {
	username, password, _ := strings.Cut(text, ":")
	var err error
	if u.options.Username, err = unescape(username); err != nil {
		return fmt.Errorf("user: %w", err)
	}
	if u.options.Password, err = unescape(password); err != nil {
		return fmt.Errorf("password: %w", err)
	}
	return nil
}

// unescape decodes percent-encoding. It replaces net/url's error, which contains a part of text.
func unescape(text string) (string, error) {
	plain, err := url.PathUnescape(text)
	if err != nil {
		return "", errors.New("% without two hexadecimal digits: write % itself as %25")
	}
	return plain, nil
}

func (u *URL) setHosts(hosts []string) error {
	if u.scheme.kind == standalone && len(hosts) > 1 {
		return errors.New("more than one host")
	}
	for _, host := range hosts {
		addr, ok := u.scheme.address(host)
		if !ok {
			return errors.New("invalid host: want a name, an IPv4 address or [an IPv6 address], and a port from 1 to 65535 or none")
		}
		u.options.Addrs = append(u.options.Addrs, addr)
	}
	return nil
}

// address parses host[:port]. A name can contain underscores, as in container networks. There is
// no default host: if a program builds the URL from an empty variable, it must not lock on
// another server.
func (s scheme) address(text string) (addr string, ok bool) {
	found := regexp.MustCompile(`^(?:([\w.-]+)|\[([\da-fA-F:.]+(?:%25[\w.-]+)?)\])(?::(\d+))?$`).FindStringSubmatch(text)
	if found == nil {
		return "", false
	}
	host, port := found[1], found[3]
	if host == "" {
		host = strings.Replace(found[2], "%25", "%", 1)
		if ip, err := netip.ParseAddr(host); err != nil || !ip.Is6() {
			return "", false
		}
	}
	switch {
	case port == "" && s.kind == sentinel:
		port = "26379"
	case port == "":
		port = "6379"
	}
	n, err := strconv.ParseUint(port, 10, 16)
	return net.JoinHostPort(host, strconv.FormatUint(n, 10)), err == nil && n > 0
}

// setPath sets the part after the hosts: the master's name, and the database.
func (u *URL) setPath(path string) error {
	db := path
	switch u.scheme.kind {
	case cluster:
		if path != "" {
			return errors.New("unexpected path: a cluster has only one database")
		}
	case sentinel:
		var master string
		var err error
		master, db, _ = strings.Cut(path, "/")
		if u.options.MasterName, err = unescape(master); err != nil {
			return fmt.Errorf("master name: %w", err)
		}
		if master == "" {
			return errors.New("no master name after the sentinels")
		}
	case standalone, socket:
	}
	if db == "" {
		return nil
	}
	return u.setDB(db)
}

func (u *URL) setSocket(hosts, path string) error {
	path, err := unescape(path)
	switch {
	case err != nil:
		return fmt.Errorf("path: %w", err)
	case hosts != "" || strings.Trim(path, "/") == "":
		return errors.New("no socket path: it begins with /")
	}
	u.options.Addrs = []string{path}
	return nil
}

func (u *URL) setDB(text string) error {
	if u.hasDB {
		return errors.New("the path already names a database")
	}
	n, err := strconv.ParseUint(text, 10, 31)
	if err != nil {
		return fmt.Errorf("database: not a number from 0 to %d", math.MaxInt32)
	}
	u.options.DB, u.hasDB = int(n), true
	return nil
}
