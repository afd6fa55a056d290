package redisurl

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
)

// setParameters sets the options from the part after the question mark.
func (u *URL) setParameters(query string) error {
	values, err := url.ParseQuery(strings.ReplaceAll(query, "+", "%2B")) // go-redis would read + as a space
	if err != nil {
		return errors.New("malformed parameters: write % as %25 and ; as %3B")
	}
	secret := values.Has("sentinel_password")
	library := url.Values{}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		own, err := u.set(name, values.Get(name))
		if !own {
			library.Set(name, values.Get(name))
			_, err = parseParameters(url.Values{name: values[name]})
		}
		switch {
		case err != nil && !own:
			return fmt.Errorf("%s is unknown for %s://, or has a wrong value; in a value write & as %%26; docs/configuration.md has the parameters", shownName(name, secret), u.scheme.name)
		case err != nil:
			return fmt.Errorf("%s: %w", name, err)
		case values.Get(name) == "" && own:
			return fmt.Errorf("%s: no value", name)
		case values.Get(name) == "": // so that an empty configuration variable does not go unnoticed
			return fmt.Errorf("%s: no value", shownName(name, secret))
		case len(values[name]) > 1:
			return fmt.Errorf("%s is given twice", name)
		}
	}
	have, err := parseParameters(library)
	if err != nil {
		return err
	}
	u.copyFrom(have)
	if err := u.checkProxy(); err != nil {
		return err
	}
	return u.files.check()
}

// set sets a parameter missing in go-redis, or with another form there. own is false for a go-redis
// parameter, and for a parameter that the scheme does not have.
func (u *URL) set(name, value string) (own bool, err error) {
	o, overTLS, hasSentinels := u.options, u.scheme.tls, u.scheme.kind == sentinel
	oneAddress := u.scheme.kind == standalone || u.scheme.kind == socket
	switch {
	case name == "db" && u.scheme.kind != cluster:
		err = u.setDB(value)
	case name == "ca" && overTLS:
		u.files.ca = value
	case name == "cert" && overTLS:
		u.files.cert = value
	case name == "key" && overTLS:
		u.files.key = value
	case name == "server_name" && overTLS:
		o.TLSConfig.ServerName = value
	case name == "insecure_skip_verify" && overTLS:
		err = setFlag(&o.TLSConfig.InsecureSkipVerify, value)
	case name == "proxy" && oneAddress:
		err = setFlag(&u.proxy, value)
	case name == "hidden_cluster" && oneAddress:
		err = setFlag(&u.hiddenCluster, value)
	case name == "sentinel_username" && hasSentinels:
		o.SentinelUsername = value
	case name == "sentinel_password" && hasSentinels:
		o.SentinelPassword = value
	case name == "db":
		err = errors.New("a cluster has only one database")
	default:
		return false, nil
	}
	return true, err
}

func setFlag(to *bool, value string) error {
	if value != "true" && value != "false" {
		return errors.New("not true or false")
	}
	*to = value == "true"
	return nil
}

// go-redis allocates room for all connections and buffers at once, and panics if it cannot.
const (
	mostConns  = 1<<16 - 1 // more than a client can open to a server, because it runs out of ports
	mostBuffer = 64 << 20  // bytes for each connection
)

// hasValidSizes reports whether all numbers for connections and bytes are in their range.
func hasValidSizes(o *redis.Options) bool {
	const noPool = -1 // no connections for pipelines only
	for _, size := range []struct{ value, least, most int }{
		{o.PoolSize, 0, mostConns},
		{o.MinIdleConns, 0, mostConns},
		{o.MaxIdleConns, 0, mostConns},
		{o.MaxActiveConns, 0, mostConns},
		{o.MaxConcurrentDials, 0, mostConns},
		{o.PipelinePoolSize, noPool, mostConns},
		{o.PipelineReadBufferSize, 0, mostBuffer},
		{o.PipelineWriteBufferSize, 0, mostBuffer},
	} {
		if size.value < size.least || size.value > size.most {
			return false
		}
	}
	return true
}

// parseParameters lets go-redis parse its parameters, and rejects some values that it accepts.
func parseParameters(values url.Values) (*redis.Options, error) {
	o, err := redis.ParseURL("redis://h?" + values.Encode())
	switch {
	case err != nil:
		return nil, errors.New("parameters that exclude each other") // the text of err may contain a password
	case min(o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout) < 0:
		// A lease is lost while a renewal waits without limit for an unresponsive server.
		return nil, errors.New("a timeout that never ends")
	case !hasValidSizes(o):
		return nil, errors.New("a wrong number of connections or bytes")
	}
	return o, nil
}

// shownName returns how an error mentions a parameter. A text that does not look like a name may be
// a part of a password. So may any text beside the sentinels' password.
func shownName(name string, secret bool) string {
	if secret || !regexp.MustCompile(`^[a-z_-]{1,30}$`).MatchString(name) {
		return "a parameter"
	}
	return "parameter " + name
}

// copyFrom copies the options parsed by go-redis: its options for a single server have the same
// names as those for all client kinds.
func (u *URL) copyFrom(have *redis.Options) {
	o := u.options
	o.Protocol, o.ClientName = have.Protocol, have.ClientName
	o.MaxRetries, o.MinRetryBackoff, o.MaxRetryBackoff = have.MaxRetries, have.MinRetryBackoff, have.MaxRetryBackoff
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout = have.DialTimeout, have.ReadTimeout, have.WriteTimeout
	o.PoolFIFO, o.PoolSize, o.PoolTimeout = have.PoolFIFO, have.PoolSize, have.PoolTimeout
	o.MinIdleConns, o.MaxIdleConns, o.MaxActiveConns = have.MinIdleConns, have.MaxIdleConns, have.MaxActiveConns
	o.MaxConcurrentDials, o.PipelinePoolSize = have.MaxConcurrentDials, have.PipelinePoolSize
	o.PipelineReadBufferSize, o.PipelineWriteBufferSize = have.PipelineReadBufferSize, have.PipelineWriteBufferSize
	o.ConnMaxIdleTime, o.ConnMaxLifetime = have.ConnMaxIdleTime, have.ConnMaxLifetime
	o.ConnMaxLifetimeJitter = have.ConnMaxLifetimeJitter
}

// checkProxy rejects parameters that make no sense together.
func (u *URL) checkProxy() error {
	switch {
	case u.proxy && u.hiddenCluster:
		return errors.New("proxy and hidden_cluster exclude each other")
	case u.proxy && u.options.ClientName != "":
		return errors.New("client_name: proxies do not know CLIENT SETNAME")
	case u.proxy && u.options.Protocol == 3:
		return errors.New("protocol: proxies speak protocol 2 only")
	}
	return nil
}
