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

// A kind is what stands at the other end.
type kind int

const (
	standalone kind = iota
	socket
	sentinel
	cluster
)

// A scheme is how a URL begins, and what that means.
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

// form is what a URL of the scheme looks like.
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

// list names the schemes that meet a condition.
func list(meets func(scheme) bool) string {
	var names []string
	for _, s := range schemes {
		if meets(s) {
			names = append(names, s.name+"://")
		}
	}
	return strings.Join(names, ", ")
}

// parse is not net/url's: that refuses a list of hosts with ports, and repeats in
// its errors what it was given. These here repeat nothing but the name of a
// parameter, because in a URL that is wrong anything may be a password.
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
	if err := u.setPlace(p); err != nil {
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
	return scheme{}, "", fmt.Errorf("it begins with none of %s", list(func(scheme) bool { return true }))
}

// parts are what follows the scheme, as it was written.
type parts struct{ user, hosts, path, query string }

// split finds the parts. It is strict about the signs that separate them: if one
// is left over, then most likely a part of a password was taken for something else.
func split(rest string) (p parts, err error) {
	if strings.IndexFunc(rest, func(r rune) bool { return r <= ' ' || r == 0x7f }) >= 0 {
		return p, errors.New("it has a space or a control character: write a space as %20")
	}
	if strings.Contains(rest, "#") {
		return p, errors.New("it has a #: write that as %23")
	}
	rest, p.query, _ = strings.Cut(rest, "?")
	authority, path, slash := strings.Cut(rest, "/")
	if slash {
		p.path = "/" + path
	}
	if strings.Contains(p.path+p.query, "@") {
		return p, errors.New("it has an @ behind a / or a ?: write these in a user or password as %2F and %3F, and elsewhere an @ as %40")
	}
	// The last @ ends the password: no host has one.
	if at := strings.LastIndexByte(authority, '@'); at >= 0 {
		p.user, authority = authority[:at], authority[at+1:]
	}
	p.hosts = authority
	return p, nil
}

// setPlace fills in what stands before the parameters.
func (u *URL) setPlace(p parts) error {
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
		return fmt.Errorf("the user: %w", err)
	}
	if u.options.Password, err = unescape(password); err != nil {
		return fmt.Errorf("the password: %w", err)
	}
	return nil
}

var errEscape = errors.New("a % without two hexadecimal digits behind it: write the sign itself as %25")

// unescape undoes percent-encoding. The error of net/url would tell what is wrong.
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
			return errors.New("the path does not begin with a /")
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

// address reads host[:port]. There is no default host: a variable that was empty
// when the URL was put together must not lock on another server.
func address(text, defaultPort string) (string, error) {
	host, port, hasPort := strings.Cut(text, ":")
	if strings.HasPrefix(text, "[") {
		inside, behind, closed := strings.Cut(text[1:], "]")
		var colon string
		colon, port, hasPort = strings.Cut(behind, ":")
		if !closed || colon != "" {
			return "", errors.New("an IPv6 address stands in brackets, and a colon before the port")
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
		return "", errors.New("more than one colon: an IPv6 address stands in brackets")
	}
	n, err := number(port, 1, math.MaxUint16)
	if err != nil {
		return "", fmt.Errorf("the port: %w", err)
	}
	return net.JoinHostPort(host, strconv.Itoa(n)), nil
}

// ipv6 reads an address, which may have a zone.
func ipv6(text string) (string, error) {
	text, err := unescape(text)
	if err != nil {
		return "", err
	}
	addr, err := netip.ParseAddr(text)
	if err != nil || !addr.Is6() || addr.Zone() != "" && checkName(addr.Zone()) != nil {
		return "", errors.New("in the brackets is no IPv6 address")
	}
	return text, nil
}

// checkName accepts the names of hosts and IPv4 addresses, and what container
// networks have for names.
func checkName(host string) error {
	if host == "" {
		return errors.New("no host")
	}
	for _, c := range []byte(host) {
		if !alphanumeric(c) && c != '-' && c != '_' && c != '.' {
			return errors.New("a host has letters, digits, dots, hyphens and underscores only")
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
			return errors.New("a cluster has one database only, and a path is not for it")
		}
	case sentinel:
		var master string
		var err error
		master, db, _ = strings.Cut(db, "/")
		if u.options.MasterName, err = unescape(master); err != nil {
			return fmt.Errorf("the master's name: %w", err)
		}
		if master == "" {
			return errors.New("no name of a master behind the sentinels")
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
		return fmt.Errorf("the path: %w", err)
	}
	if strings.Trim(path, "/") == "" {
		return errors.New("no path of a socket")
	}
	u.options.Addrs = []string{path}
	return nil
}

func (u *URL) setDB(text string) error {
	if u.hasDB {
		return errors.New("the database stands in the path already")
	}
	n, err := number(text, 0, math.MaxInt32)
	if err != nil {
		return fmt.Errorf("the database: %w", err)
	}
	u.options.DB, u.hasDB = n, true
	return nil
}

// number reads digits, and nothing else.
func number(text string, least, most int) (int, error) {
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil || n < uint64(least) || n > uint64(most) {
		return 0, fmt.Errorf("not a number from %d to %d", least, most)
	}
	return int(n), nil
}
