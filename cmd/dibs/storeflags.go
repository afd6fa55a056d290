package main

import (
	"cmp"
	"strings"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/quorum"
	"github.com/spf13/pflag"
)

// storeFlags are the flags about the store, which all subcommands share.
type storeFlags struct {
	env environment

	urls       []string
	local      bool
	prefix     string
	prefixSet  bool // --prefix was given, possibly empty
	replicas   int
	longestTTL time.Duration
	timeout    time.Duration
}

func (o *storeFlags) flags(f *pflag.FlagSet) {
	f.StringArrayVar(&o.urls, "url", nil, "URL of the store, such as redis://host:6379; repeat it for a quorum of three or more servers (default $DIBS_URL)")
	f.BoolVar(&o.local, "local", false, "store locks in a file of this user: excludes processes of THIS HOST ONLY")
	f.StringVar(&o.prefix, "prefix", "", `prefix of the keys in Redis; may be empty (default $DIBS_PREFIX, or "lock:")`)
	f.IntVar(&o.replicas, "replicas", 0, "number of replicas that must acknowledge each acquisition (default 0)")
	f.Var((*durationFlag)(&o.longestTTL), "longest", "longest TTL on a quorum; use the same value everywhere (default 1m)")
	f.Var((*durationFlag)(&o.timeout), "timeout", "time limit of one operation on the store (default $DIBS_TIMEOUT, or 2s)")
}

// resolve fills the flags that were not given from the environment and validates them.
func (o *storeFlags) resolve(given func(flag string) bool) error {
	const least = time.Millisecond
	from := "--timeout"
	o.prefixSet = given("prefix")
	if !given("timeout") {
		from, o.timeout = "DIBS_TIMEOUT", 2*time.Second
		if text := o.env.get("DIBS_TIMEOUT"); text != "" {
			if err := (*durationFlag)(&o.timeout).Set(text); err != nil {
				return usage("DIBS_TIMEOUT %q: %w", text, err)
			}
		}
	}
	switch {
	case o.timeout < least:
		return usage("%s %v: want at least %v", from, o.timeout, least)
	case o.replicas < 0:
		return usage("--replicas %d: want 0 or more", o.replicas)
	case given("longest") && (o.longestTTL < driver.MinTTL || o.longestTTL > driver.MaxTTL):
		return usage("--longest %v: want %v to %v", o.longestTTL, driver.MinTTL, driver.MaxTTL)
	}
	return nil
}

// storeURLs returns the URLs from the flags, or else from the environment.
func (o *storeFlags) storeURLs() ([]string, error) {
	switch {
	case o.local && len(o.urls) > 0:
		return nil, usage("--local and --url exclude each other")
	case o.local:
		return []string{"local:"}, nil
	case len(o.urls) > 0:
		return o.urls, nil
	}
	urls := strings.Fields(o.env.get("DIBS_URL"))
	if len(urls) == 0 {
		return nil, errNoStore
	}
	return urls, nil
}

// urlSource returns the flag or variable that storeURLs has read, for errors.
func (o *storeFlags) urlSource() string {
	if len(o.urls) > 0 {
		return "--url"
	}
	return "DIBS_URL"
}

// keyPrefix returns the prefix from --prefix or DIBS_PREFIX. set is true also for an
// empty prefix.
func (o *storeFlags) keyPrefix() (prefix string, set bool) {
	if o.prefix != "" || o.prefixSet {
		return o.prefix, true
	}
	return o.env.lookup("DIBS_PREFIX")
}

// checkLongest rejects a TTL that is longer than the longest TTL of a quorum.
func (o *storeFlags) checkLongest(ttl time.Duration) error {
	urls, err := o.storeURLs()
	longest := cmp.Or(o.longestTTL, quorum.Longest)
	if err == nil && len(urls) > 1 && ttl > longest {
		return usage("TTL %v is longer than %v, the longest TTL on this quorum: pass --longest, with the same value everywhere", ttl, longest)
	}
	return err
}
