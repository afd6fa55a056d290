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
	mixed      bool
	redisson   bool
	longestTTL time.Duration
	timeout    time.Duration
}

func (f *storeFlags) flags(set *pflag.FlagSet) {
	set.StringArrayVar(&f.urls, "url", nil, "URL of the store, such as redis://host:6379, postgres://host/db, mysql://host/db, etcd://host1,host2 or zk://host1,host2; repeat it for a quorum of three or more Redis servers (default $DIBS_URL)")
	set.BoolVar(&f.local, "local", false, "store locks in a file of this user: excludes processes of THIS HOST ONLY")
	set.StringVar(&f.prefix, "prefix", "", `prefix of the keys in Redis or etcd, or path in ZooKeeper (default $DIBS_PREFIX, or "lock:"; in etcd "lock/", in ZooKeeper "/locks")`)
	set.IntVar(&f.replicas, "replicas", 0, "number of replicas that must acknowledge each acquisition (default 0)")
	set.BoolVar(&f.mixed, "shared-keys", false, "leave names free now and then for clients of other libraries on the same keys in Redis")
	set.BoolVar(&f.redisson, "redisson", false, "share locks with RLock of Redisson; without readers and slots, and by default without a prefix")
	set.Var((*durationFlag)(&f.longestTTL), "max-ttl", "longest TTL on a quorum; use the same value everywhere (default 1m)")
	set.Var((*durationFlag)(&f.timeout), "timeout", "time limit of one operation on the store (default $DIBS_TIMEOUT, or 2s)")
}

// resolve fills missing flags from the environment and validates them.
func (f *storeFlags) resolve(given func(flag string) bool) error {
	const least = time.Millisecond
	var err error
	if f.env, err = f.env.withSecrets(); err != nil {
		return err
	}
	from := "--timeout"
	f.prefixSet = given("prefix")
	if !given("timeout") {
		from, f.timeout = "DIBS_TIMEOUT", 2*time.Second
		if text := f.env.get("DIBS_TIMEOUT"); text != "" {
			if err := (*durationFlag)(&f.timeout).Set(text); err != nil {
				return usage("DIBS_TIMEOUT %q: %w", text, err)
			}
		}
	}
	switch {
	case f.timeout < least:
		return usage("%s %v: want at least %v", from, f.timeout, least)
	case f.mixed && f.redisson:
		return usage("--redisson implies --shared-keys: pass one of them")
	case f.replicas < 0:
		return usage("--replicas %d: want 0 or more", f.replicas)
	case given("max-ttl") && (f.longestTTL < driver.MinTTL || f.longestTTL > driver.MaxTTL):
		return usage("--max-ttl %v: want %v to %v", f.longestTTL, driver.MinTTL, driver.MaxTTL)
	}
	return nil
}

// storeURLs returns the URLs from the flags, or else from the environment.
func (f *storeFlags) storeURLs() ([]string, error) {
	switch {
	case f.local && len(f.urls) > 0:
		return nil, usage("--local and --url exclude each other")
	case f.local:
		return []string{"local:"}, nil
	case len(f.urls) > 0:
		return f.urls, nil
	}
	urls := strings.Fields(f.env.get("DIBS_URL"))
	if len(urls) == 0 {
		return nil, errNoStore
	}
	return urls, nil
}

// urlSource returns the flag or variable that storeURLs read, for errors.
func (f *storeFlags) urlSource() string {
	if len(f.urls) > 0 {
		return "--url"
	}
	return "DIBS_URL"
}

// keyPrefix returns the prefix from --prefix or DIBS_PREFIX. set is true also for an
// empty prefix.
func (f *storeFlags) keyPrefix() (prefix string, set bool) {
	if f.prefix != "" || f.prefixSet {
		return f.prefix, true
	}
	return f.env.lookup("DIBS_PREFIX")
}

// checkLongest rejects a TTL longer than a quorum's longest TTL.
func (f *storeFlags) checkLongest(ttl time.Duration) error {
	urls, err := f.storeURLs()
	longest := cmp.Or(f.longestTTL, quorum.DefaultMaxTTL)
	if err == nil && len(urls) > 1 && ttl > longest {
		return usage("TTL %v is longer than %v, the longest TTL on this quorum: pass --max-ttl, with the same value everywhere", ttl, longest)
	}
	return err
}
