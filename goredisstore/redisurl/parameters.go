package redisurl

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// A parameter is a setting behind the question mark.
type parameter struct {
	name string
	fits func(scheme) bool
	set  func(u *URL, value string) error
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
	{"sentinel_username", hasSentinels, func(u *URL, value string) error { u.options.SentinelUsername = value; return nil }},
	{"sentinel_password", hasSentinels, func(u *URL, value string) error { u.options.SentinelPassword = value; return nil }},
}

// mostConns is more than one client can have to one server: it runs out of ports.
// go-redis makes room for all of them at once.
const mostConns = 1<<16 - 1

func always(scheme) bool         { return true }
func overTLS(s scheme) bool      { return s.tls }
func hasSentinels(s scheme) bool { return s.kind == sentinel }
func hasDatabases(s scheme) bool { return s.kind != cluster }

func (u *URL) setParameters(query string) error {
	if query == "" {
		return nil
	}
	seen := map[string]bool{}
	for part := range strings.SplitSeq(query, "&") {
		name, value, _ := strings.Cut(part, "=")
		p, err := u.scheme.parameter(name)
		if err != nil && seen["sentinel_password"] {
			return errors.New("an unknown parameter behind sentinel_password: write an & in that as %26")
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
	return u.files.check()
}

// parameter finds one by its name.
func (s scheme) parameter(name string) (parameter, error) {
	var names []string
	for _, p := range parameters {
		switch {
		case p.fits(s):
			if p.name == name {
				return p, nil
			}
			names = append(names, p.name)
		case p.name == name:
			return parameter{}, fmt.Errorf("%s is not for %s://, only for %s", name, s.name, list(p.fits))
		}
	}
	if nameLike(name) {
		name = " " + name
	} else {
		name = ""
	}
	return parameter{}, fmt.Errorf("unknown parameter%s; %s:// has %s", name, s.name, strings.Join(names, ", "))
}

// nameLike reports whether somebody meant this to be a name. If not, it may be
// what somebody wants to keep to himself.
func nameLike(text string) bool {
	const long = 30
	return text != "" && len(text) <= long && strings.Trim(strings.ToLower(text), "abcdefghijklmnopqrstuvwxyz_-") == ""
}

func setNumber(to *int, value string, least, most int) (err error) {
	*to, err = number(value, least, most)
	return err
}

// setDuration refuses zero and less, which go-redis takes for "no limit": who
// waits for a server that is mute, and for ever, keeps no lease.
func setDuration(to *time.Duration, value string) error {
	d, err := time.ParseDuration(value)
	if err != nil || d <= 0 {
		return errors.New("not a duration above zero, such as 500ms or 5s")
	}
	*to = d
	return nil
}

// setClientName refuses what the server would refuse on every new connection.
func (u *URL) setClientName(name string) error {
	for _, c := range []byte(name) {
		if c < '!' || c > '~' {
			return errors.New("not ASCII without spaces")
		}
	}
	u.options.ClientName = name
	return nil
}

func (u *URL) setInsecure(value string) error {
	if value != "true" && value != "false" {
		return errors.New("neither true nor false")
	}
	u.options.TLSConfig.InsecureSkipVerify = value == "true"
	return nil
}
