package redisurl

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// parameter is a setting after the question mark.
type parameter struct {
	name      string
	isAllowed func(scheme) bool
	set       func(u *URL, value string) error
}

var parameters = []parameter{
	{"db", hasDatabases, (*URL).setDB},
	{"client_name", always, (*URL).setClientName},
	{"protocol", always, func(u *URL, value string) error { return setNumber(&u.options.Protocol, value, 2, 3) }},
	{"pool_size", always, func(u *URL, value string) error { return setNumber(&u.options.PoolSize, value, 1, mostConns) }},
	{"min_idle_conns", always, func(u *URL, value string) error { return setNumber(&u.options.MinIdleConns, value, 0, mostConns) }},
	{"pool_timeout", always, func(u *URL, value string) error { return setDuration(&u.options.PoolTimeout, value) }},
	{"dial_timeout", always, func(u *URL, value string) error { return setDuration(&u.options.DialTimeout, value) }},
	{"read_timeout", always, func(u *URL, value string) error { return setDuration(&u.options.ReadTimeout, value) }},
	{"write_timeout", always, func(u *URL, value string) error { return setDuration(&u.options.WriteTimeout, value) }},
	{"ca", overTLS, func(u *URL, value string) error { u.files.ca = value; return nil }},
	{"cert", overTLS, func(u *URL, value string) error { u.files.cert = value; return nil }},
	{"key", overTLS, func(u *URL, value string) error { u.files.key = value; return nil }},
	{"server_name", overTLS, func(u *URL, value string) error { u.options.TLSConfig.ServerName = value; return nil }},
	{"insecure_skip_verify", overTLS, (*URL).setInsecure},
	{"proxy", hasOneAddress, func(u *URL, value string) error { return setFlag(&u.proxy, value) }},
	{"sharded", hasOneAddress, func(u *URL, value string) error { return setFlag(&u.sharded, value) }},
	{"sentinel_username", hasSentinels, func(u *URL, value string) error { u.options.SentinelUsername = value; return nil }},
	{"sentinel_password", hasSentinels, func(u *URL, value string) error { u.options.SentinelPassword = value; return nil }},
}

// mostConns is more than one client can open to one server, because it runs out of ports.
// There is a limit because go-redis allocates room for all of them at once.
const mostConns = 1<<16 - 1

func always(scheme) bool         { return true }
func overTLS(s scheme) bool      { return s.tls }
func hasSentinels(s scheme) bool { return s.kind == sentinel }
func hasDatabases(s scheme) bool { return s.kind != cluster }
func hasOneAddress(s scheme) bool {
	return s.kind == standalone || s.kind == socket
}

func (u *URL) setParameters(query string) error {
	if query == "" {
		return nil
	}
	seen := map[string]bool{}
	for part := range strings.SplitSeq(query, "&") {
		name, value, _ := strings.Cut(part, "=")
		p, err := u.scheme.parameter(name)
		if err != nil && seen["sentinel_password"] {
			return errors.New("unknown parameter after sentinel_password: write & in a password as %26")
		}
		if err != nil {
			return err
		}
		if seen[name] {
			return fmt.Errorf("%s is given twice", name)
		}
		seen[name] = true
		if value, err = unescape(value); err == nil && value == "" {
			err = errors.New("no value")
		}
		if err == nil {
			err = p.set(u, value)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	if err := u.checkProxy(); err != nil {
		return err
	}
	return u.files.check()
}

// parameter returns the parameter with a name, if the scheme has it.
func (s scheme) parameter(name string) (parameter, error) {
	var names []string
	for _, p := range parameters {
		switch {
		case p.isAllowed(s):
			if p.name == name {
				return p, nil
			}
			names = append(names, p.name)
		case p.name == name:
			return parameter{}, fmt.Errorf("%s is not valid for %s://, only for %s", name, s.name, list(p.isAllowed))
		}
	}
	if nameLike(name) {
		name = " " + name
	} else {
		name = ""
	}
	return parameter{}, fmt.Errorf("unknown parameter%s; %s:// accepts %s", name, s.name, strings.Join(names, ", "))
}

// nameLike reports whether text looks like the name of a parameter. Other text may be a
// part of a password, so errors do not repeat it.
func nameLike(text string) bool {
	const long = 30
	return text != "" && len(text) <= long && strings.Trim(strings.ToLower(text), "abcdefghijklmnopqrstuvwxyz_-") == ""
}

func setNumber(to *int, value string, least, most int) (err error) {
	*to, err = number(value, least, most)
	return err
}

// setDuration rejects zero and negative durations, which mean "no limit" to go-redis: a
// lease is lost while a renewal waits without limit for an unresponsive server.
func setDuration(to *time.Duration, value string) error {
	d, err := time.ParseDuration(value)
	if err != nil || d <= 0 {
		return errors.New("not a positive duration such as 500ms or 5s")
	}
	*to = d
	return nil
}

// setClientName rejects a name that the server would reject on every new connection.
func (u *URL) setClientName(name string) error {
	for _, c := range []byte(name) {
		if c < '!' || c > '~' {
			return errors.New("not printable ASCII without spaces")
		}
	}
	u.options.ClientName = name
	return nil
}

func (u *URL) setInsecure(value string) error {
	return setFlag(&u.options.TLSConfig.InsecureSkipVerify, value)
}

func setFlag(to *bool, value string) error {
	if value != "true" && value != "false" {
		return errors.New("not true or false")
	}
	*to = value == "true"
	return nil
}

// checkProxy rejects parameters that make no sense together.
func (u *URL) checkProxy() error {
	switch {
	case u.proxy && u.sharded:
		return errors.New("proxy and sharded exclude each other")
	case u.proxy && u.options.ClientName != "":
		return errors.New("client_name: proxies do not know CLIENT SETNAME")
	case u.proxy && u.options.Protocol == 3:
		return errors.New("protocol: proxies speak protocol 2 only")
	}
	return nil
}
