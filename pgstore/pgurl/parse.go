package pgurl

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

const form = "want postgres://[user:password@]host[:port][,host[:port]…]/database[?parameters]"

func cutScheme(rawURL string) (rest string, ok bool) {
	scheme, rest, found := strings.Cut(rawURL, "://")
	scheme = strings.ToLower(scheme)
	return rest, found && (scheme == "postgres" || scheme == "postgresql")
}

// parse leaves libpq's format to pgx. It is stricter about separating a password from the rest. Its
// errors repeat no part of the URL, because any may be a password.
func parse(rawURL string) (*URL, error) {
	rest, ok := cutScheme(rawURL)
	if !ok {
		return nil, errors.New(form)
	}
	user, address, err := cutUser(rest)
	if err != nil {
		return nil, err
	}
	address, query, _ := strings.Cut(address, "?")
	u := &URL{schema: defaultSchema}
	_, password, _ := strings.Cut(user, ":")
	u.hasUser, u.hasPassword = user != "" && !strings.HasPrefix(user, ":"), password != ""
	names, others, err := u.setParameters(query)
	if err != nil {
		return nil, err
	}
	text := "postgres://" + address
	if user != "" {
		text = "postgres://" + user + "@" + address
	}
	if len(others) > 0 {
		text += "?" + strings.Join(others, "&")
	}
	if u.config, err = pgxpool.ParseConfig(text); err != nil {
		return nil, withoutURL(err)
	}
	u.configure(names)
	return u, nil
}

// cutUser separates user:password from the rest. Another @ most likely means that a piece of the
// password was taken for something else.
func cutUser(rest string) (user, address string, err error) {
	if strings.IndexFunc(rest, func(r rune) bool { return r <= ' ' || r == 0x7f }) >= 0 {
		return "", "", errors.New("space or control character: write a space as %20")
	}
	if strings.Contains(rest, "#") {
		return "", "", errors.New("unescaped #: write it as %23")
	}
	user, address, found := strings.Cut(rest, "@")
	switch {
	case !found:
		return "", rest, nil
	case strings.Contains(user, "/"), strings.Contains(address, "@"):
		return "", "", errors.New("@ or / in a user, a password or a parameter: write @ as %40 and / as %2F")
	}
	return user, address, nil
}

// setParameters sets the dibs parameters. It returns all names, and the other parameters' text.
func (u *URL) setParameters(query string) (names, others []string, err error) {
	if query == "" {
		return nil, nil, nil
	}
	for part := range strings.SplitSeq(query, "&") {
		name, value, _ := strings.Cut(part, "=")
		names = append(names, name)
		u.hasUser = u.hasUser || name == "user"
		u.hasPassword = u.hasPassword || name == "password"
		if !strings.HasPrefix(name, "dibs_") {
			others = append(others, part)
			continue
		}
		text, err := url.PathUnescape(value)
		if err != nil {
			return nil, nil, errors.New("% without two hexadecimal digits: write % itself as %25")
		}
		if err := u.set(name, text); err != nil {
			return nil, nil, err
		}
	}
	return names, others, nil
}

// pgx's messages with a parameter's name, but no part of the URL.
var safeMessages = []string{
	"failed to read service", "invalid sslcertmode", "invalid connect_timeout", "invalid port", "failed to configure TLS",
	"unknown target_session_attrs value", "unknown channel_binding value", "invalid require_auth",
	"cannot parse pool_max_conns", "pool_max_conns too small", "cannot parse pool_min_conns", "cannot parse pool_max_conn_lifetime",
	"cannot parse pool_max_conn_idle_time", "cannot parse pool_health_check_period", "cannot parse statement_cache_capacity",
}

// withoutURL returns an error with the safe parts of a pgx error.
func withoutURL(err error) error {
	const files = "failed to configure TLS"
	var parse *pgconn.ParseConfigError
	if !errors.As(err, &parse) {
		return errors.New("malformed; " + form)
	}
	text := strings.ReplaceAll(err.Error(), parse.ConnString, "")
	for _, message := range safeMessages {
		switch {
		case !strings.Contains(text, ": "+message):
		case message == files:
			return fmt.Errorf("%s: %w", message, errors.Unwrap(parse))
		default:
			return errors.New(message + "; " + form)
		}
	}
	return errors.New("malformed; " + form)
}
