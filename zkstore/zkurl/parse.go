package zkurl

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/dibslock/dibs/zkstore"
)

const (
	form        = "want zk://[user:password@]host[:port][,host[:port]…][/path][?parameters]"
	defaultPort = "2181"
)

func cutScheme(rawURL string) (rest string, overTLS, ok bool) {
	scheme, rest, found := strings.Cut(rawURL, "://")
	scheme = strings.ToLower(scheme)
	return rest, scheme == "zks", found && (scheme == "zk" || scheme == "zks")
}

// parse repeats no part of the URL in errors, because any may be a password. Only a file's name can
// be in an error.
func parse(rawURL string) (*URL, error) {
	rest, overTLS, ok := cutScheme(rawURL)
	switch {
	case !ok:
		return nil, errors.New(form)
	case strings.ContainsFunc(rest, func(r rune) bool { return r <= ' ' || r == 0x7f }):
		return nil, errors.New("space or control character: write a space as %20")
	case strings.Contains(rest, "#"):
		return nil, errors.New("unescaped #: write it as %23")
	}
	address, query, _ := strings.Cut(rest, "?")
	servers, path, _ := strings.Cut(address, "/")
	user, hosts, found := strings.Cut(servers, "@")
	if !found {
		user, hosts = "", servers
	}
	if strings.Contains(hosts, "@") || strings.Contains(path, "@") {
		return nil, errors.New("@ or / in a user, a password or a path: write @ as %40 and, in a password, / as %2F")
	}
	u := &URL{}
	if overTLS {
		u.tls = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	if err := errors.Join(u.setUser(user), u.setHosts(hosts), u.setPath(path)); err != nil {
		return nil, err
	}
	if err := u.setParameters(query); err != nil {
		return nil, err
	}
	return u, nil
}

func unescape(text string) (string, error) {
	plain, err := url.PathUnescape(text)
	if err != nil {
		return "", errors.New("% without two hexadecimal digits: write % itself as %25")
	}
	return plain, nil
}

func (u *URL) setUser(text string) (err error) {
	username, password, _ := strings.Cut(text, ":")
	if u.username, err = unescape(username); err != nil {
		return err
	}
	if u.password, err = unescape(password); err != nil {
		return err
	}
	if strings.Contains(u.username, ":") {
		return errors.New("a user with a colon: ZooKeeper allows it in passwords only")
	}
	if u.username == "" && u.password != "" {
		return errors.New("a password without a user: ZooKeeper has no default user")
	}
	return nil
}

var hostname = regexp.MustCompile(`^[A-Za-z0-9_.-]+$`)

func (u *URL) setHosts(text string) error {
	for one := range strings.SplitSeq(text, ",") {
		host, port, err := splitPort(one)
		if err != nil {
			return err
		}
		u.addHost(net.JoinHostPort(host, port))
	}
	return nil
}

// splitPort returns a host without brackets, and its port.
func splitPort(text string) (host, port string, err error) {
	if strings.HasPrefix(text, "[") {
		address, after, closed := strings.Cut(text[1:], "]")
		ip, err := netip.ParseAddr(address)
		if !closed || err != nil || !ip.Is6() || ip.Zone() != "" || after != "" && after[0] != ':' {
			return "", "", errors.New("malformed host: write an IPv6 address as [::1], without a zone")
		}
		host, port = ip.String(), strings.TrimPrefix(after, ":")
	} else {
		host, port, _ = strings.Cut(text, ":")
		if !hostname.MatchString(host) {
			return "", "", errors.New("no host, or a malformed host; " + form)
		}
	}
	port = cmp.Or(port, defaultPort)
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return "", "", errors.New("malformed port; write an IPv6 address as [::1]; " + form)
	}
	return host, port, nil
}

func (u *URL) setPath(path string) (err error) {
	if u.path, err = unescape(strings.TrimSuffix(path, "/")); err != nil || u.path == "" {
		return err
	}
	for segment := range strings.SplitSeq(u.path, "/") {
		switch {
		case segment == "", segment == ".", segment == "..":
			return errors.New("path: it contains . or .., or an empty name")
		case !utf8.ValidString(segment), strings.ContainsFunc(segment, unicode.IsControl):
			return errors.New("path: it contains a control character, or is not UTF-8")
		}
	}
	return nil
}

func (u *URL) setParameters(query string) error {
	values, err := url.ParseQuery(strings.ReplaceAll(query, "+", "%2B")) // a file's name can contain +
	if err != nil {
		return errors.New("malformed parameters: write % as %25, & as %26 and ; as %3B")
	}
	var files files
	for _, name := range slices.Sorted(maps.Keys(values)) {
		all := values[name]
		switch known, err := u.set(name, all[0], &files); {
		case !known && u.tls == nil:
			return errors.New("unknown parameter: want connect_timeout, format or tick; with zks:// also ca, cert, key, server_name or insecure_skip_verify")
		case !known:
			return errors.New("unknown parameter: want connect_timeout, format, tick, ca, cert, key, server_name or insecure_skip_verify")
		case len(all) > 1:
			return fmt.Errorf("%s is given twice", name)
		case all[0] == "":
			return fmt.Errorf("%s: no value", name)
		case err != nil:
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return files.load(u.tls)
}

// set sets a parameter. known is false for a parameter that the scheme does not have.
func (u *URL) set(name, value string, f *files) (known bool, err error) {
	overTLS := u.tls != nil
	switch {
	case name == "connect_timeout":
		u.connect, err = parseDuration(value)
	case name == "tick":
		u.tick, err = parseDuration(value)
	case name == "format":
		u.format, err = parseFormat(value)
	case name == "ca" && overTLS:
		f.ca = value
	case name == "cert" && overTLS:
		f.cert = value
	case name == "key" && overTLS:
		f.key = value
	case name == "server_name" && overTLS:
		u.tls.ServerName = value
	case name == "insecure_skip_verify" && overTLS:
		if value != "true" && value != "false" {
			return true, errors.New("not true or false")
		}
		u.tls.InsecureSkipVerify = value == "true"
	default:
		return false, nil
	}
	return true, err
}

func parseDuration(value string) (time.Duration, error) {
	d, err := time.ParseDuration(value)
	if err != nil || d <= 0 {
		return 0, errors.New("want a duration such as 2s")
	}
	return d, nil
}

func parseFormat(value string) (zkstore.NodeFormat, error) {
	switch value {
	case "curator":
		return zkstore.Curator, nil
	case "kazoo":
		return zkstore.Kazoo, nil
	}
	return 0, errors.New("not curator or kazoo")
}

// files are the paths to the PEM files for TLS.
type files struct{ ca, cert, key string }

// load sets the files' content in a configuration.
func (f files) load(config *tls.Config) error {
	if (f.cert == "") != (f.key == "") {
		return errors.New("cert and key must be given together")
	}
	if f.ca != "" {
		text, err := os.ReadFile(f.ca)
		if err != nil {
			return fmt.Errorf("ca: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(text) {
			return fmt.Errorf("ca: no certificate in %q", f.ca)
		}
	}
	if f.cert != "" {
		pair, err := tls.LoadX509KeyPair(f.cert, f.key)
		if err != nil {
			return fmt.Errorf("cert and key: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return nil
}
