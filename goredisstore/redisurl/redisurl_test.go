package redisurl

import (
	"crypto/tls"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/dibslock/dibs"
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

		scheme  = "unknown scheme; want one of redis://, rediss://, unix://, redis+sentinel://, rediss+sentinel://, redis+cluster://, rediss+cluster://"
		space   = "space or control character: write a space as %20" + wantRedis
		hash    = "unescaped #: write it as %23" + wantRedis
		at      = "@ after a / or ?: in a user or password write / as %2F and ? as %3F; elsewhere write @ as %40"
		escape  = "% without two hexadecimal digits: write % itself as %25"
		name    = "a host may contain only letters, digits, dots, hyphens and underscores" + wantRedis
		port    = "port: not a number from 1 to 65535"
		colons  = "more than one colon: put an IPv6 address in brackets" + wantRedis
		closing = "malformed IPv6 address: want [address] or [address]:port" + wantRedis
		ipv6    = "no IPv6 address in the brackets" + wantRedis
		db      = "database: not a number from 0 to 2147483647"
		twoDBs  = "db: the path already names a database"
		noDB    = "unexpected path: a cluster has only one database" + wantCluster
		master  = "no master name after the sentinels" + wantSentinel
		conns   = "pool_size: not a number from 1 to 65535"
		nothing = "client_name: no value"
		time    = "not a positive duration such as 500ms or 5s"
		pair    = "cert and key must be given together"

		plain = "; redis:// accepts db, client_name, protocol, pool_size, min_idle_conns, pool_timeout, dial_timeout, read_timeout, write_timeout, proxy, sharded"
		onTLS = " is not valid for redis://, only for rediss://, rediss+sentinel://, rediss+cluster://"
	)
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
		{"redis://", "no host" + wantRedis},
		{"redis:///1", "no host" + wantRedis},
		{"redis://:1", "no host" + wantRedis},
		{"redis://:a@", "no host" + wantRedis},
		{"redis://a,b", "more than one host" + wantRedis},
		{"redis://h%41", name},
		{"redis://hö", name},
		{"redis://h:", port + wantRedis},
		{"redis://h:port", port + wantRedis},
		{"redis://h:0", port + wantRedis},
		{"redis://h:65536", port + wantRedis},
		{"redis://h:+1", port + wantRedis},
		{"redis://h:1:2", colons},
		{"redis://fe80::1", colons},
		{"redis://::1", "no host" + wantRedis},
		{"redis://[::1", closing},
		{"redis://[::1]1", closing},
		{"redis://[::1]x:1", closing},
		{"redis://[::1]:", port + wantRedis},
		{"redis://[]", ipv6},
		{"redis://[1.2.3.4]", ipv6},
		{"redis://[h]", ipv6},
		{"redis://[fe80::1%25a%40b]", ipv6},
		{"redis://[fe80::1%]", escape + wantRedis},
		{"redis://h/x", db + wantRedis},
		{"redis://h/-1", db + wantRedis},
		{"redis://h/1/2", db + wantRedis},
		{"redis://h/2147483648", db + wantRedis},
		{"unix://", "no socket path" + wantUnix},
		{"unix:///", "no socket path" + wantUnix},
		{"unix://run/redis.sock", "the socket path must begin with /" + wantUnix},
		{"unix:///a%", "path: " + escape + wantUnix},
		{"redis+sentinel://a", master},
		{"redis+sentinel://a/", master},
		{"redis+sentinel://a//1", master},
		{"redis+sentinel://a/m%", "master name: " + escape + wantSentinel},
		{"redis+sentinel://a/m/x", db + wantSentinel},
		{"redis+sentinel://a,/m", "host 2 of 2: no host" + wantSentinel},
		{"redis+sentinel://a:1,b:x,c/m", "host 2 of 3: " + port + wantSentinel},
		{"redis+cluster://a/0", noDB},
		{"redis+cluster://,a", "host 1 of 2: no host" + wantCluster},
		{"redis+cluster://a?db=0", "db is not valid for redis+cluster://, only for redis://, rediss://, unix://, redis+sentinel://, rediss+sentinel://"},
		{"redis://h/1?db=1", twoDBs},
		{"redis://h?db=x", "db: " + db},
		{"redis://h?db=1&db=1", "db is given twice"},
		{"redis://h?pool_size=1&protocol=2&pool_size=1", "pool_size is given twice"},
		{"redis://h?poolsize=1", "unknown parameter poolsize" + plain},
		{"redis://h?password=x", "unknown parameter password" + plain},
		{"redis://h?pa55w0rd", "unknown parameter" + plain},
		{"redis://h?db=1&", "unknown parameter" + plain},
		{"redis://h?client_name", nothing},
		{"redis://h?client_name=", nothing},
		{"redis://h?client_name=a%", "client_name: " + escape},
		{"redis://h?client_name=a%20b", "client_name: not printable ASCII without spaces"},
		{"redis://h?protocol=1", "protocol: not a number from 2 to 3"},
		{"redis://h?pool_size=0", conns},
		{"redis://h?pool_size=65536", conns},
		{"redis://h?pool_size=1e3", conns},
		{"redis://h?min_idle_conns=-1", "min_idle_conns: not a number from 0 to 65535"},
		{"redis://h?dial_timeout=5", "dial_timeout: " + time},
		{"redis://h?read_timeout=0s", "read_timeout: " + time},
		{"redis://h?write_timeout=-1s", "write_timeout: " + time},
		{"redis://h?pool_timeout=soon", "pool_timeout: " + time},
		{"redis://h?ca=/f", "ca" + onTLS},
		{"redis://h?insecure_skip_verify=true", "insecure_skip_verify" + onTLS},
		{"rediss://h?insecure_skip_verify=1", "insecure_skip_verify: not true or false"},
		{"rediss://h?cert=/f", pair},
		{"rediss://h?key=/f", pair},
		{"redis://h?proxy=1", "proxy: not true or false"},
		{"redis+cluster://h?proxy=true", "proxy is not valid for redis+cluster://, only for redis://, rediss://, unix://"},
		{"redis+sentinel://h/m?sharded=true", "sharded is not valid for redis+sentinel://, only for redis://, rediss://, unix://"},
		{"redis://h?proxy=true&sharded=true", "proxy and sharded exclude each other"},
		{"redis://h?proxy=true&client_name=a", "client_name: proxies do not know CLIENT SETNAME"},
		{"redis://h?protocol=3&proxy=true", "protocol: proxies speak protocol 2 only"},
		{"redis+sentinel://h/m?sentinel_password=a&b", "unknown parameter after sentinel_password: write & in a password as %26"},
		{"redis://h?sentinel_password=x", "sentinel_password is not valid for redis://, only for redis+sentinel://, rediss+sentinel://"},
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
		"redis://host?client_name=s3cret%20",
		"redis+sentinel://host/m?sentinel_password=s3cret&sentinel_password=s3cret",
		"redis+sentinel://host/m?sentinel_password=s3cret%",
		"redis+sentinel://host/m?sentinel_password=s3cret&x",
		"redis+sentinel://host/m?sentinel_password=pa&s3cret",
		"redis+sentinel://host/m?sentinel_password=pa&s3cret&pool_size=1",
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

// An error of Parse is one line and repeats nothing of the URL. The String of a valid URL
// is one line, shows no password, and is a valid URL itself.
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
