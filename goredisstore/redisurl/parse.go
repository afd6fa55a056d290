package redisurl

import (
	"crypto/tls"
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// kind is the kind of setup that a URL leads to.
type kind int

const (
	standalone kind = iota
	socket
	sentinel
	cluster
)

// scheme is the first part of a URL and its meaning.
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

// form returns the syntax of a URL of the scheme.
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

// list returns the names of the schemes that match.
func list(match func(scheme) bool) string {
	var names []string
	for _, s := range schemes {
		if match(s) {
			names = append(names, s.name+"://")
		}
	}
	return strings.Join(names, ", ")
}

// parse parses a URL. It does not use net/url, which rejects a list of hosts with ports,
// and repeats its input in errors. The errors here repeat only names of parameters,
// because in an invalid URL any part may be a password.
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
	for _, s := range schemes {
		if found && strings.EqualFold(name, s.name) {
			return s, rest, nil
		}
	}
	return scheme{}, "", fmt.Errorf("unknown scheme; want one of %s", list(func(scheme) bool { return true }))
}

// parts are the parts after the scheme, still escaped.
type parts struct{ user, hosts, path, query string }

// split splits a URL into its parts. It is strict about the characters that separate
// them: an unexpected one most likely means that part of a password was taken for another
// part.
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
	// The last @ ends the password, because no host contains one.
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
	if err := u.setHosts(p.hosts); err != nil {
		return err
	}
	return u.setPath(p.path)
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

var errEscape = errors.New("% without two hexadecimal digits: write % itself as %25")

// unescape decodes percent-encoding. It replaces the error of net/url, which contains a
// part of text.
func unescape(text string) (string, error) {
	plain, err := url.PathUnescape(text)
	if err != nil {
		return "", errEscape
	}
	return plain, nil
}

func (u *URL) setHosts(list string) error {
	if u.scheme.kind == socket {
		if list != "" {
			return errors.New("the socket path must begin with /")
		}
		return nil
	}
	port := "6379"
	if u.scheme.kind == sentinel {
		port = "26379"
	}
	hosts := strings.Split(list, ",")
	if u.scheme.kind == standalone && len(hosts) > 1 {
		return errors.New("more than one host")
	}
	for i, host := range hosts {
		addr, err := address(host, port)
		if err != nil && len(hosts) > 1 {
			return fmt.Errorf("host %d of %d: %w", i+1, len(hosts), err)
		}
		if err != nil {
			return err
		}
		u.options.Addrs = append(u.options.Addrs, addr)
	}
	return nil
}

// address parses host[:port]. There is no default host: if a program builds the URL from
// an empty variable, it must not lock on another server.
func address(text, defaultPort string) (string, error) {
	host, port, hasPort := strings.Cut(text, ":")
	if strings.HasPrefix(text, "[") {
		inside, after, closed := strings.Cut(text[1:], "]")
		var colon string
		colon, port, hasPort = strings.Cut(after, ":")
		if !closed || colon != "" {
			return "", errors.New("malformed IPv6 address: want [address] or [address]:port")
		}
		var err error
		if host, err = ipv6(inside); err != nil {
			return "", err
		}
	} else if err := checkName(host); err != nil {
		return "", err
	}
	if !hasPort {
		return net.JoinHostPort(host, defaultPort), nil
	}
	if strings.Contains(port, ":") {
		return "", errors.New("more than one colon: put an IPv6 address in brackets")
	}
	n, err := number(port, 1, math.MaxUint16)
	if err != nil {
		return "", fmt.Errorf("port: %w", err)
	}
	return net.JoinHostPort(host, strconv.Itoa(n)), nil
}

// ipv6 parses an IPv6 address, which may have a zone.
func ipv6(text string) (string, error) {
	text, err := unescape(text)
	if err != nil {
		return "", err
	}
	addr, err := netip.ParseAddr(text)
	if err != nil || !addr.Is6() || addr.Zone() != "" && checkName(addr.Zone()) != nil {
		return "", errors.New("no IPv6 address in the brackets")
	}
	return text, nil
}

// checkName accepts host names, IPv4 addresses, and names in container networks, which
// may contain underscores.
func checkName(host string) error {
	if host == "" {
		return errors.New("no host")
	}
	for _, c := range []byte(host) {
		if !alphanumeric(c) && c != '-' && c != '_' && c != '.' {
			return errors.New("a host may contain only letters, digits, dots, hyphens and underscores")
		}
	}
	return nil
}

func alphanumeric(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
}

func (u *URL) setPath(path string) error {
	db := strings.TrimPrefix(path, "/")
	switch u.scheme.kind {
	case socket:
		return u.setSocket(path)
	case cluster:
		if db != "" {
			return errors.New("unexpected path: a cluster has only one database")
		}
	case sentinel:
		var master string
		var err error
		master, db, _ = strings.Cut(db, "/")
		if u.options.MasterName, err = unescape(master); err != nil {
			return fmt.Errorf("master name: %w", err)
		}
		if master == "" {
			return errors.New("no master name after the sentinels")
		}
	case standalone:
	}
	if db == "" {
		return nil
	}
	return u.setDB(db)
}

func (u *URL) setSocket(path string) error {
	path, err := unescape(path)
	if err != nil {
		return fmt.Errorf("path: %w", err)
	}
	if strings.Trim(path, "/") == "" {
		return errors.New("no socket path")
	}
	u.options.Addrs = []string{path}
	return nil
}

func (u *URL) setDB(text string) error {
	if u.hasDB {
		return errors.New("the path already names a database")
	}
	n, err := number(text, 0, math.MaxInt32)
	if err != nil {
		return fmt.Errorf("database: %w", err)
	}
	u.options.DB, u.hasDB = n, true
	return nil
}

// number parses a number of digits only, from least to most.
func number(text string, least, most int) (int, error) {
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil || n < uint64(least) || n > uint64(most) {
		return 0, fmt.Errorf("not a number from %d to %d", least, most)
	}
	return int(n), nil
}
