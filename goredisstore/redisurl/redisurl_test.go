package redisurl

import (
	"crypto/tls"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/internal/test/urltest"
	"github.com/redis/go-redis/v9"
)

// options returns the options that Open passes to go-redis.
func options(t *testing.T, u *URL) *redis.UniversalOptions {
	t.Helper()
	o, err := u.complete()
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func mustParse(t *testing.T, rawURL string) *URL {
	t.Helper()
	u, err := Parse(rawURL)
	if err != nil {
		t.Fatalf("%s: %v", rawURL, err)
	}
	return u
}

func TestStandalone(t *testing.T) {
	tlsTo := func(name string) *tls.Config { return &tls.Config{MinVersion: tls.VersionTLS12, ServerName: name} }
	for rawURL, want := range map[string]redis.Options{
		"redis://h":                       {Addr: "h:6379"},
		"redis://h/":                      {Addr: "h:6379"},
		"redis://h?":                      {Addr: "h:6379"},
		"REDIS://h":                       {Addr: "h:6379"},
		"redis://h:1/2":                   {Addr: "h:1", DB: 2},
		"redis://h?db=2":                  {Addr: "h:6379", DB: 2},
		"redis://10.0.0.1:65535":          {Addr: "10.0.0.1:65535"},
		"redis://my_host-1.lan":           {Addr: "my_host-1.lan:6379"},
		"redis://[::1]":                   {Addr: "[::1]:6379"},
		"redis://[::1]:7/1":               {Addr: "[::1]:7", DB: 1},
		"redis://[fe80::1%25eth0]:7":      {Addr: "[fe80::1%eth0]:7"},
		"redis://:pass@h":                 {Addr: "h:6379", Password: "pass"},
		"redis://u:pass@h":                {Addr: "h:6379", Username: "u", Password: "pass"},
		"redis://u:p:q@h":                 {Addr: "h:6379", Username: "u", Password: "p:q"},
		"redis://u:p@q@h":                 {Addr: "h:6379", Username: "u", Password: "p@q"},
		"redis://:+;&=<>{}^\"ö,@h":        {Addr: "h:6379", Password: "+;&=<>{}^\"ö,"},
		"redis://a%3Ab:%2F%3f%23%40%25@h": {Addr: "h:6379", Username: "a:b", Password: "/?#@%"},
		"redis://:@h":                     {Addr: "h:6379"},
		"redis://h?client_name=me&protocol=2": {
			Addr: "h:6379", ClientName: "me", Protocol: 2,
		},
		"redis://h?protocol=3&pool_size=7&min_idle_conns=0": {
			Addr: "h:6379", Protocol: 3, PoolSize: 7,
		},
		"redis://h?dial_timeout=1s&read_timeout=2ms&write_timeout=1m30s&pool_timeout=4s&min_idle_conns=2": {
			Addr: "h:6379", DialTimeout: time.Second, ReadTimeout: 2 * time.Millisecond,
			WriteTimeout: 90 * time.Second, PoolTimeout: 4 * time.Second, MinIdleConns: 2,
		},
		"rediss://h":               {Addr: "h:6379", TLSConfig: tlsTo("")},
		"rediss://h?server_name=s": {Addr: "h:6379", TLSConfig: tlsTo("s")},
		"rediss://h?insecure_skip_verify=false": {
			Addr: "h:6379", TLSConfig: tlsTo(""),
		},
		"rediss://h?insecure_skip_verify=true": {
			Addr: "h:6379", TLSConfig: &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: true},
		},
		"unix:///run/redis.sock":             {Addr: "/run/redis.sock"},
		"unix:///run/a%40b%20c?db=3":         {Addr: "/run/a@b c", DB: 3},
		"unix://u:p@/run/redis.sock?db=0":    {Addr: "/run/redis.sock", Username: "u", Password: "p"},
		"unix:///run/redis.sock?pool_size=1": {Addr: "/run/redis.sock", PoolSize: 1},
	} {
		if have := options(t, mustParse(t, rawURL)).Simple(); !reflect.DeepEqual(have, &want) {
			t.Errorf("%s:\nwant %+v\nhave %+v", rawURL, want, *have)
		}
	}
}

func TestSentinel(t *testing.T) {
	for rawURL, want := range map[string]redis.FailoverOptions{
		"redis+sentinel://a/m":  {SentinelAddrs: []string{"a:26379"}, MasterName: "m"},
		"redis+sentinel://a/m/": {SentinelAddrs: []string{"a:26379"}, MasterName: "m"},
		"redis+sentinel://u:p@a:1,b,[::1]:2,[::2]/my%2Fma%40ster/3": {
			SentinelAddrs: []string{"a:1", "b:26379", "[::1]:2", "[::2]:26379"}, MasterName: "my/ma@ster",
			DB: 3, Username: "u", Password: "p",
		},
		"redis+sentinel://a/m?db=3&sentinel_username=su&sentinel_password=s+%40%2B%26p": {
			SentinelAddrs: []string{"a:26379"}, MasterName: "m",
			DB: 3, SentinelUsername: "su", SentinelPassword: "s+@+&p",
		},
		"rediss+sentinel://a,b/m?server_name=s&read_timeout=1s": {
			SentinelAddrs: []string{"a:26379", "b:26379"}, MasterName: "m", ReadTimeout: time.Second,
			TLSConfig: &tls.Config{MinVersion: tls.VersionTLS12, ServerName: "s"},
		},
	} {
		o := options(t, mustParse(t, rawURL))
		if have := o.Failover(); !reflect.DeepEqual(have, &want) {
			t.Errorf("%s:\nwant %+v\nhave %+v", rawURL, want, *have)
		}
	}
}

func TestCluster(t *testing.T) {
	for rawURL, want := range map[string]redis.ClusterOptions{
		"redis+cluster://a":  {Addrs: []string{"a:6379"}},
		"redis+cluster://a/": {Addrs: []string{"a:6379"}},
		"redis+cluster://u:p@a:1,b,[::1]:2?pool_size=3": {
			Addrs: []string{"a:1", "b:6379", "[::1]:2"}, Username: "u", Password: "p", PoolSize: 3,
		},
		"rediss+cluster://a,b": {
			Addrs: []string{"a:6379", "b:6379"}, TLSConfig: &tls.Config{MinVersion: tls.VersionTLS12},
		},
	} {
		if have := options(t, mustParse(t, rawURL)).Cluster(); !reflect.DeepEqual(have, &want) {
			t.Errorf("%s:\nwant %+v\nhave %+v", rawURL, want, *have)
		}
	}
}

func TestKindOfClient(t *testing.T) {
	for rawURL, want := range map[string]string{
		"redis://h":               "*redis.Client",
		"unix:///s":               "*redis.Client",
		"rediss+sentinel://a,b/m": "*redis.Client",
		"redis+cluster://a":       "*redis.ClusterClient",
		"rediss+cluster://a,b":    "*redis.ClusterClient",
	} {
		rdb, err := mustParse(t, rawURL).Open()
		if err != nil {
			t.Errorf("%s: %v", rawURL, err)
			continue
		}
		defer rdb.Close()
		if have := fmt.Sprintf("%T", rdb); have != want {
			t.Errorf("%s: want %s, have %s", rawURL, want, have)
		}
	}
}

func TestRefused(t *testing.T) {
	const (
		wantRedis    = "; want redis://[user:password@]host[:port][/db]"
		wantUnix     = "; want unix://[user:password@]/path[?db=n]"
		wantSentinel = "; want redis+sentinel://[user:password@]host[:port][,host[:port]…]/master[/db]"
		wantCluster  = "; want redis+cluster://[user:password@]host[:port][,host[:port]…]"

		scheme = "unknown scheme; want one of redis://, rediss://, unix://, redis+sentinel://, rediss+sentinel://, redis+cluster://, rediss+cluster://"
		space  = "space or control character: write a space as %20" + wantRedis
		hash   = "unescaped #: write it as %23" + wantRedis
		at     = "@ after a / or ?: in a user or password write / as %2F and ? as %3F; elsewhere write @ as %40"
		escape = "% without two hexadecimal digits: write % itself as %25"
		host   = "invalid host: want a name, an IPv4 address or [an IPv6 address], and a port from 1 to 65535 or none"
		noHost = host + wantRedis
		db     = "database: not a number from 0 to 2147483647"
		twoDBs = "db: the path already names a database"
		noDB   = "unexpected path: a cluster has only one database" + wantCluster
		master = "no master name after the sentinels" + wantSentinel
		socket = "no socket path: it begins with /" + wantUnix
		query  = "malformed parameters: write % as %25 and ; as %3B"
		pair   = "cert and key must be given together"
		flag   = ": not true or false"
	)
	wrong := func(name, scheme string) string {
		return name + " is unknown for " + scheme + "://, or has a wrong value; in a value write & as %26; docs/configuration.md has the parameters"
	}
	for _, c := range []struct{ rawURL, want string }{
		{"", scheme},
		{"h:6379", scheme},
		{"redis:h", scheme},
		{"http://h", scheme},
		{"redis+unix:///s", scheme},
		{" redis://h", scheme},
		{"redis://h ", space},
		{"redis://h\n", space},
		{"redis://:a b@h", space},
		{"redis://:a#b@h", hash},
		{"redis://h#", hash},
		{"redis://:a/b@h", at + wantRedis},
		{"redis://:a?b@h", at + wantRedis},
		{"redis://h?client_name=a@b", at + wantRedis},
		{"unix:///a@b", at + wantUnix},
		{"redis://a%@h", "user: " + escape + wantRedis},
		{"redis://:a%zz@h", "password: " + escape + wantRedis},
		{"redis://", noHost},
		{"redis:///1", noHost},
		{"redis://:1", noHost},
		{"redis://:a@", noHost},
		{"redis://a,b", "more than one host" + wantRedis},
		{"redis://h%41", noHost},
		{"redis://hö", noHost},
		{"redis://h:", noHost},
		{"redis://h:port", noHost},
		{"redis://h:0", noHost},
		{"redis://h:65536", noHost},
		{"redis://h:+1", noHost},
		{"redis://h:1:2", noHost},
		{"redis://fe80::1", noHost},
		{"redis://::1", noHost},
		{"redis://[::1", noHost},
		{"redis://[::1]1", noHost},
		{"redis://[::1]x:1", noHost},
		{"redis://[::1]:", noHost},
		{"redis://[]", noHost},
		{"redis://[1.2.3.4]", noHost},
		{"redis://[h]", noHost},
		{"redis://[fe80::1%25a%40b]", noHost},
		{"redis://[fe80::1%]", noHost},
		{"redis://h/x", db + wantRedis},
		{"redis://h/-1", db + wantRedis},
		{"redis://h/1/2", db + wantRedis},
		{"redis://h/2147483648", db + wantRedis},
		{"unix://", socket},
		{"unix:///", socket},
		{"unix://run/redis.sock", socket},
		{"unix:///a%", "path: " + escape + wantUnix},
		{"redis+sentinel://a", master},
		{"redis+sentinel://a/", master},
		{"redis+sentinel://a//1", master},
		{"redis+sentinel://a/m%", "master name: " + escape + wantSentinel},
		{"redis+sentinel://a/m/x", db + wantSentinel},
		{"redis+sentinel://a,/m", host + wantSentinel},
		{"redis+sentinel://a:1,b:x,c/m", host + wantSentinel},
		{"redis+cluster://a/0", noDB},
		{"redis+cluster://,a", host + wantCluster},
		{"redis+cluster://a?db=0", "db: a cluster has only one database"},
		{"redis://h/1?db=1", twoDBs},
		{"redis://h?db=x", "db: " + db},
		{"redis://h?db=", "db: " + db},
		{"redis://h?db=1&db=1", "db is given twice"},
		{"redis://h?pool_size=1&protocol=2&pool_size=1", "pool_size is given twice"},
		{"redis://h?poolsize=1", wrong("parameter poolsize", "redis")},
		{"redis://h?password=x", wrong("parameter password", "redis")},
		{"redis://h?skip_verify=true", wrong("parameter skip_verify", "redis")},
		{"redis+cluster://h?read_only=true", wrong("parameter read_only", "redis+cluster")},
		{"redis+cluster://h?addr=b:1", wrong("parameter addr", "redis+cluster")},
		{"redis+sentinel://h/m?replica_only=true", wrong("parameter replica_only", "redis+sentinel")},
		{"redis://h?pa55w0rd", wrong("a parameter", "redis")},
		{"redis://h?=x", wrong("a parameter", "redis")},
		{"redis://h?client_name=a%", query},
		{"redis://h?client_name=a;b", query},
		{"redis://h?pool_size=65536", wrong("parameter pool_size", "redis")},
		{"redis://h?pool_size=-1", wrong("parameter pool_size", "redis")},
		{"redis://h?pool_size=1e3", wrong("parameter pool_size", "redis")},
		{"redis://h?min_idle_conns=-1", wrong("parameter min_idle_conns", "redis")},
		{"redis://h?read_timeout=0s", wrong("parameter read_timeout", "redis")},
		{"redis://h?write_timeout=-1s", wrong("parameter write_timeout", "redis")},
		{"redis://h?dial_timeout=0", wrong("parameter dial_timeout", "redis")},
		{"redis://h?pool_timeout=soon", wrong("parameter pool_timeout", "redis")},
		{"redis://h?idle_timeout=1s&conn_max_idle_time=1s", "parameters that exclude each other"},
		{"redis://h?ca=/f", wrong("parameter ca", "redis")},
		{"redis://h?insecure_skip_verify=true", wrong("parameter insecure_skip_verify", "redis")},
		{"rediss://h?insecure_skip_verify=1", "insecure_skip_verify" + flag},
		{"rediss://h?cert=/f", pair},
		{"rediss://h?key=/f", pair},
		{"redis://h?proxy=1", "proxy" + flag},
		{"redis+cluster://h?proxy=true", wrong("parameter proxy", "redis+cluster")},
		{"redis+sentinel://h/m?hidden_cluster=true", wrong("parameter hidden_cluster", "redis+sentinel")},
		{"redis://h?proxy=true&hidden_cluster=true", "proxy and hidden_cluster exclude each other"},
		{"redis://h?proxy=true&client_name=a", "client_name: proxies do not know CLIENT SETNAME"},
		{"redis://h?protocol=3&proxy=true", "protocol: proxies speak protocol 2 only"},
		{"redis+sentinel://h/m?sentinel_password=a&b", wrong("a parameter", "redis+sentinel")},
		{"redis://h?sentinel_password=x", wrong("a parameter", "redis")},
	} {
		_, err := Parse(c.rawURL)
		if want := "dibs: invalid Redis URL: " + c.want; err == nil || err.Error() != want {
			t.Errorf("%q:\nwant %s\nhave %v", c.rawURL, want, err)
		}
		if !errors.Is(err, dibs.ErrInvalid) {
			t.Errorf("%q: want ErrInvalid, have %v", c.rawURL, err)
		}
	}
}

func TestUserWithoutPassword(t *testing.T) {
	const want = "dibs: invalid Redis URL: user without a password: want user:password@, or :password@ for the default user"
	for _, rawURL := range []string{"redis://s3cret@h", "redis+cluster://s3cret:@h"} {
		_, err := mustParse(t, rawURL).Open()
		if err == nil || err.Error() != want || !errors.Is(err, dibs.ErrInvalid) {
			t.Errorf("%s: want %s, have %v", rawURL, want, err)
		}
	}
	_, err := mustParse(t, "redis+sentinel://h/m?sentinel_username=s3cret").Open()
	if err == nil || !strings.HasSuffix(err.Error(), ": sentinel_username without sentinel_password") {
		t.Errorf("want an error about the password of the sentinels, have %v", err)
	}
}

func TestWith(t *testing.T) {
	given := Environment(func(name string) string { return "from " + name })
	const sentinels = "redis+sentinel://h/m?"
	for _, c := range []struct {
		rawURL string
		given  Credentials
		want   Credentials
	}{
		{"redis://h", Credentials{}, Credentials{}},
		{"redis://h", given, Credentials{Username: "from DIBS_USERNAME", Password: "from DIBS_PASSWORD"}},
		{"redis://h", Credentials{Password: "p"}, Credentials{Password: "p"}},
		{"redis://:p@h", given, Credentials{Password: "p"}},
		{"redis://u:p@h", given, Credentials{Username: "u", Password: "p"}},
		{"redis://u@h", given, Credentials{Username: "u", Password: "from DIBS_PASSWORD"}},
		{sentinels, given, Credentials{"from DIBS_USERNAME", "from DIBS_PASSWORD", "from DIBS_SENTINEL_USERNAME", "from DIBS_SENTINEL_PASSWORD"}},
		{sentinels + "sentinel_username=u", given, Credentials{"from DIBS_USERNAME", "from DIBS_PASSWORD", "u", "from DIBS_SENTINEL_PASSWORD"}},
		{"redis+sentinel://:p@h/m?sentinel_password=sp", given, Credentials{Password: "p", SentinelPassword: "sp"}},
	} {
		u := mustParse(t, c.rawURL)
		before := *u.options
		o := options(t, u.With(c.given))
		have := Credentials{o.Username, o.Password, o.SentinelUsername, o.SentinelPassword}
		if have != c.want {
			t.Errorf("%s with %+v:\nwant %+v\nhave %+v", c.rawURL, c.given, c.want, have)
		}
		if !reflect.DeepEqual(before, *u.options) {
			t.Errorf("%s: With changed the URL", c.rawURL)
		}
	}
}

func TestString(t *testing.T) {
	for rawURL, want := range map[string]string{
		"redis://u:s3cret@h":                           "redis://h:6379/0",
		"REDISS://:s3cret@h:1/2?ca=/f&pool_size=3":     "rediss://h:1/2",
		"redis://[fe80::1%25eth0]":                     "redis://[fe80::1%25eth0]:6379/0",
		"unix://u:s3cret@/run/a%40b%20%3F%23%0Ac?db=1": "unix:///run/a%40b%20%3F%23%0Ac?db=1",
		"redis+sentinel://s3cret:s3cret@a,b:1/m%2F%40n?sentinel_username=s3cret&sentinel_password=s3cret": "redis+sentinel://a:26379,b:1/m%2F%40n/0",
		"rediss+cluster://:s3cret@a,[::1]": "rediss+cluster://a:6379,[::1]:6379",
	} {
		u := mustParse(t, rawURL)
		if have := u.String(); have != want {
			t.Errorf("%s: want %s, have %s", rawURL, want, have)
		}
		if again := mustParse(t, want).String(); again != want {
			t.Errorf("%s parsed is %s", want, again)
		}
		u = u.With(Credentials{"s3cret", "s3cret", "s3cret", "s3cret"})
		for _, v := range []any{u, struct{ where *URL }{u}} {
			for _, form := range []string{"%v", "%+v", "%#v", "%s", "%q", "%d"} {
				if text := fmt.Sprintf(form, v); strings.Contains(text, "s3cret") {
					t.Errorf("%s of %T shows the password: %s", form, v, text)
				}
			}
		}
	}
}

func TestErrorsShowNoPassword(t *testing.T) {
	for _, rawURL := range []string{
		"http://:s3cret@host:6379",
		"s3cret://host:6379",
		"redis://:s3cret@host:6379/zero",
		"redis://s3cret@host:6379/zero",
		"redis://:pa/s3cret@host:6379",
		"redis://pa/s3cret@host:6379",
		"redis://:pa#s3cret@host:6379",
		"redis://:pa?s3cret@host:6379",
		"redis://:pa?s3cret=1&a@host:6379",
		"redis://:s3cret%zz@host:6379",
		"redis://:%s3cret@host:6379",
		"redis://:s3cret\n@host:6379",
		"redis://:s3cret",
		"redis://user:s3cret:6379",
		"redis://[s3cret]",
		"redis://host:s3cret",
		"redis://host/s3cret",
		"redis://host?s3cret",
		"redis://host?password=s3cret",
		"redis://host?db=s3cret",
		"redis://host?dial_timeout=s3cret",
		"redis+sentinel://host/m?sentinel_password=s3cret&sentinel_password=s3cret",
		"redis+sentinel://host/m?sentinel_password=s3cret%",
		"redis+sentinel://host/m?sentinel_password=s3cret&x",
		"redis+sentinel://host/m?sentinel_password=pa&s3cret",
		"redis+sentinel://host/m?sentinel_password=pa&s3cret&pool_size=1",
		"redis+sentinel://host/m?sentinel_password=pa&pool_size=s3cret",
		"redis+sentinel://host/m?sentinel_username=s3cret&s3cret",
		"redis+sentinel://host/s3cret%zz",
		"redis+sentinel://host,s3cret:s3cret/m",
		"redis://host?read_timeout=s3cret&pool_size=s3cret",
		"redis://host?client_name=pa;s3cret",
		"redis://host?%s3cret=1",
		"redis://host?proxy=s3cret",
		"rediss://host?insecure_skip_verify=s3cret",
		"redis+cluster://host?db=s3cret",
		"redis+cluster://host/s3cret",
		"redis+cluster://:s3cret@a,b,/",
		"unix://:s3cret@",
		"unix://:pa/s3cret@/run/redis.sock",
		"user:s3cret@host:6379",
		"s3cret@host:6379",
		"s3cret",
	} {
		_, err := Parse(rawURL)
		if err == nil {
			t.Errorf("%q: want an error", rawURL)
			continue
		}
		if text := err.Error(); strings.Contains(text, "s3cret") || strings.Contains(text, "\n") {
			t.Errorf("%q: want one line without the password, have %q", rawURL, text)
		}
	}
}

// A part of a password can look like a parameter name.
func TestErrorsShowNoPasswordOfLetters(t *testing.T) {
	for _, rawURL := range []string{
		"redis+sentinel://host/m?sentinel_password=pa&secret",
		"redis+sentinel://host/m?sentinel_password=pa&another=secret",
		"redis+sentinel://host/m?sentinel_password=pa&a_secret&pool_size=x",
		"redis://host?sentinel_password=pa&secret",
	} {
		if _, err := Parse(rawURL); err == nil || strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "another") {
			t.Errorf("%q: want an error without the password, have %v", rawURL, err)
		}
	}
}

// A password can have any character, escaped or not, before any other mistake.
func TestNoTextShowsPartOfAPassword(t *testing.T) {
	urltest.WantNoPassword(t, Parse, "redis", []string{"@"}, []string{"", "@host", "@host/0", "@host:port", "@host:99999", "@/0", "@a,b", "@host/x", "@host?db=x", "@host?read_timeout=x", "@host?proxy=x", "@host?unknown=1", "@host?client_name=%zz", "@host?protocol=3&proxy=true", "@[::1"})
}

// A size larger than the memory must be rejected, and the largest possible size must not.
func TestSizes(t *testing.T) {
	for name, most := range map[string]int{
		"pool_size": 65535, "min_idle_conns": 65535, "max_idle_conns": 65535, "max_active_conns": 65535,
		"max_concurrent_dials": 65535, "pipeline_pool_size": 65535,
		"pipeline_read_buffer_size": 64 << 20, "pipeline_write_buffer_size": 64 << 20,
	} {
		for _, value := range []int{most + 1, math.MaxInt, -2} {
			rawURL := fmt.Sprintf("redis://h?%s=%d", name, value)
			if _, err := Parse(rawURL); err == nil || !strings.Contains(err.Error(), "parameter "+name+" is unknown for redis://, or has a wrong value") {
				t.Errorf("%s: %v", rawURL, err)
			}
		}
		if name == "min_idle_conns" { // Open would connect
			continue
		}
		rdb, err := mustParse(t, fmt.Sprintf("redis://h?%s=%d", name, most)).Open()
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if err := rdb.Close(); err != nil {
			t.Error(err)
		}
	}
	if o := options(t, mustParse(t, "redis://h?pipeline_pool_size=-1")); o.PipelinePoolSize != -1 {
		t.Errorf("pipeline_pool_size=-1: %d", o.PipelinePoolSize)
	}
}

// A parameter whose value is missing should not get the default.
func TestNoValue(t *testing.T) {
	for query, want := range map[string]string{
		"rediss://h?ca=": "ca", "rediss://h?cert=&key=": "cert", "rediss://h?server_name=": "server_name",
		"redis://h?pool_size=": "parameter pool_size", "redis://h?client_name": "parameter client_name",
		"redis://h?read_timeout=": "parameter read_timeout", "redis://h?pool_fifo=": "parameter pool_fifo",
		"redis+sentinel://h/m?sentinel_username=": "sentinel_username", "redis+sentinel://h/m?sentinel_password=": "sentinel_password",
		"redis+sentinel://h/m?sentinel_password=pa&pool_size": "a parameter",
	} {
		_, err := Parse(query)
		if want = "dibs: invalid Redis URL: " + want + ": no value"; err == nil || err.Error() != want {
			t.Errorf("%s:\nwant %s\nhave %v", query, want, err)
		}
	}
}

// Each option that go-redis reads from a URL should reach the client.
func TestParametersOfLibrary(t *testing.T) {
	const query = "protocol=2&client_name=a&max_retries=3&min_retry_backoff=4ms&max_retry_backoff=5ms&dial_timeout=6s&read_timeout=7s&" +
		"write_timeout=8&pool_fifo=true&pool_size=9&pool_timeout=10s&min_idle_conns=1&max_idle_conns=11&max_active_conns=12&" +
		"max_concurrent_dials=13&pipeline_pool_size=14&pipeline_read_buffer_size=15&pipeline_write_buffer_size=16&" +
		"conn_max_idle_time=17s&conn_max_lifetime=18s&conn_max_lifetime_jitter=1s"
	library, err := redis.ParseURL("redis://h:6379?" + query)
	if err != nil {
		t.Fatal(err)
	}
	for _, prefix := range []string{"redis://h?", "unix:///h?", "redis+sentinel://h/m?", "redis+cluster://h?"} {
		want, have := reflect.ValueOf(*library), reflect.ValueOf(*options(t, mustParse(t, prefix+query)))
		for i := range want.NumField() {
			name := want.Type().Field(i).Name
			if want.Field(i).IsZero() || name == "Addr" || name == "Network" {
				continue
			}
			if field := have.FieldByName(name); !field.IsValid() || !reflect.DeepEqual(field.Interface(), want.Field(i).Interface()) {
				t.Errorf("%s: %s is %v, want %v", prefix, name, field, want.Field(i))
			}
		}
	}
}

// An error from Parse must be a single line and repeat nothing in the URL. A valid URL's String
// must be a single line, show no password, and be a valid URL itself.
func FuzzURL(f *testing.F) {
	for _, form := range []string{
		"redis://:%s@host:6379/x", "http://u:%s@h", "redis://%s@h/?a=b", "%s", "redis://h/%s@", "::%s@",
		"redis://:%s@h:6379/1?pool_size=3", "rediss://u:%s@[::1]?ca=/f&server_name=s", "unix://:%s@/a%20b?db=1",
		"redis+sentinel://u:%s@a:1,b/m/2", "redis+sentinel://a/m?sentinel_password=%s", "redis+cluster://:%s@a,b?protocol=2",
		"redis://h?%s=1", "redis://h?read_timeout=%s", "redis://[fe80::1%25%s]",
	} {
		f.Add(form)
	}
	f.Fuzz(func(t *testing.T, form string) {
		const secret = "s3cretw0rd"
		if strings.Contains(form, secret) {
			return
		}
		rawURL := strings.ReplaceAll(form, "%s", secret)
		u, err := Parse(rawURL)
		if err != nil {
			if text := err.Error(); strings.Contains(text, secret) || strings.ContainsAny(text, "\r\n") {
				t.Errorf("%q: %q", rawURL, text)
			}
			return
		}
		text := u.String()
		o := u.options
		asPassword := strings.Contains(form, ":%s@") && strings.Count(form, "%s") == 1
		shown := !asPassword && strings.Contains(strings.Join(o.Addrs, ",")+o.MasterName, secret)
		if strings.Contains(text, secret) && !shown || strings.ContainsAny(text, "\r\n") {
			t.Errorf("%q: %q", rawURL, text)
		}
		again, err := Parse(text)
		if err != nil {
			t.Errorf("%q: %q: %v", rawURL, text, err)
		} else if again.String() != text {
			t.Errorf("%q: %q and then %q", rawURL, text, again)
		}
	})
}
