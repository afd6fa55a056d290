package etcdurl_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/etcdstore"
	"github.com/dibslock/dibs/etcdstore/etcdurl"
	"github.com/dibslock/dibs/internal/test/urltest"
)

func parse(t *testing.T, rawURL string) *etcdurl.URL {
	t.Helper()
	u, err := etcdurl.Parse(rawURL)
	if err != nil {
		t.Fatalf("%s: %v", rawURL, err)
	}
	return u
}

func TestString(t *testing.T) {
	t.Parallel()
	for rawURL, want := range map[string]string{
		"etcd://host":  "etcd://host:2379",
		"etcd://host/": "etcd://host:2379",
		"ETCD://ann:s3cret@a:1,b,a:1?dial_timeout=1s": "etcd://a:1,b:2379",
		"etcds://[::1],10.0.0.1:4/team/locks":         "etcds://[::1]:2379,10.0.0.1:4/team/locks/",
		"etcd://host//registry/locks/":                "etcd://host:2379//registry/locks/",
		"etcd://host//":                               "etcd://host:2379//",
		"etcd://host/a%20b%40c%2Fd":                   "etcd://host:2379/a%20b%40c/d/",
	} {
		if have := parse(t, rawURL).String(); have != want {
			t.Errorf("%s: have %s, want %s", rawURL, have, want)
		}
	}
}

func TestPrefix(t *testing.T) {
	t.Parallel()
	for rawURL, want := range map[string]string{
		"etcd://host": "", "etcd://host/": "", "etcd://host/a": "a/", "etcd://host/a/": "a/", "etcd://host//a/b": "/a/b/", "etcd://host/a%2Fb%40": "a/b@/",
	} {
		u := parse(t, rawURL)
		if have := u.Prefix(); have != want || len(u.Options()) > 0 != (want != "") {
			t.Errorf("%s: have %q, want %q", rawURL, have, want)
		}
	}
}

func TestMalformedURLShowsNoPassword(t *testing.T) {
	t.Parallel()
	urltest.WantErrors(t, etcdurl.Parse, map[string]string{
		"redis://:s3cret@host":                                   "want etcd://",
		"etcd://ann:12/s3cret@host":                              "write @ as %40",
		"etcd://ann:p@s3cret@host":                               "write @ as %40",
		"etcd://ann:s3cret%zz@host":                              "write % itself as %25",
		"etcd://host:s3cret":                                     "malformed port",
		"etcd://ann:s3cret@host:99999":                           "malformed port",
		"etcd://ann:s3cret@host:0":                               "malformed port",
		"etcd://ann:s3cret@::1":                                  "no host",
		"etcd://ann:s3cret@2001:db8::1":                          "as [::1]",
		"etcd://ann:s3cret@[::1%25eth0]":                         "without a zone",
		"etcd://ann:s3cret@[::1":                                 "malformed host",
		"etcd://ann:s3cret@a,,b":                                 "no host",
		"etcd://ann:s3cret@":                                     "no host",
		"etcd://":                                                "no host",
		"etcd://ann:s3 cret@host":                                "as %20",
		"etcd://ann:#s3cret@host":                                "as %23",
		"etcd://:s3cret@host":                                    "a password without a user",
		"etcd://ann:s3cret@host/%00":                             "control character",
		"etcd://ann:s3cret@host?dial_timeout=s3cret":             "dial_timeout: want a duration",
		"etcd://ann:s3cret@host?dial_timeout=-1s":                "dial_timeout: want a duration",
		"etcd://ann:s3cret@host?dial_timeout=1s&dial_timeout=2s": "dial_timeout is given twice",
		"etcd://ann:s3cret@host?dial_timeot=s3cret":              "want dial_timeout",
		"etcd://ann:s3cret@host?ca=/none":                        "with etcds://",
		"etcds://ann:s3cret@host?ca=":                            "ca: no value",
		"etcds://ann:s3cret@host?ca=/none":                       "/none",
		"etcds://ann:s3cret@host?ca=etcdurl.go":                  "no certificate",
		"etcds://ann:s3cret@host?cert=/none":                     "together",
		"etcds://ann:s3cret@host?cert=/none&key=/none":           "/none",
		"etcds://ann:s3cret@host?insecure_skip_verify=1":         "not true or false",
		"etcd://ann:s3cret@host?a=1;b=s3cret":                    "as %3B",
		"etcd://ann:s3cret@host?dial_timeout=%zzs3cret":          "as %25",
	})
}

func TestCredentials(t *testing.T) {
	t.Parallel()
	environment := etcdurl.Environment(func(name string) string {
		return map[string]string{"DIBS_USERNAME": "bob", "DIBS_PASSWORD": "of bob"}[name]
	})
	for _, c := range []struct {
		rawURL string
		want   etcdurl.Credentials
	}{
		{"etcd://host", environment},
		{"etcd://ann@host", etcdurl.Credentials{Username: "ann", Password: "of bob"}},
		{"etcd://ann:h%40r%2Fs@host", etcdurl.Credentials{Username: "ann", Password: "h@r/s"}},
	} {
		config := parse(t, c.rawURL).With(environment).Config()
		if have := (etcdurl.Credentials{Username: config.Username, Password: config.Password}); have != c.want {
			t.Errorf("%s: have %v, want %v", c.rawURL, have, c.want)
		}
	}
}

func TestConfig(t *testing.T) {
	t.Parallel()
	config := parse(t, "etcd://a,[::1]:4?dial_timeout=9s").Config()
	if want := []string{"http://a:2379", "http://[::1]:4"}; !slices.Equal(config.Endpoints, want) || config.DialTimeout != 9*time.Second || config.TLS != nil {
		t.Errorf("have %+v, want the endpoints %q", config, want)
	}
	u := parse(t, "etcds://a?server_name=b&insecure_skip_verify=true")
	config = u.Config()
	if config.Endpoints[0] != "https://a:2379" || config.TLS.ServerName != "b" || !config.TLS.InsecureSkipVerify {
		t.Errorf("have %+v with %+v", config, config.TLS)
	}
	config.TLS.ServerName = "c"
	if name := u.Config().TLS.ServerName; name != "b" {
		t.Errorf("the caller changed the URL: have the name %q", name)
	}
}

func TestIs(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{"etcd://h": true, "ETCDS://h": true, "redis://h": false, "etcd:h": false, "": false} {
		if etcdurl.Is(text) != want {
			t.Errorf("%q: want %t", text, want)
		}
	}
}

func ExampleParse() {
	url, err := etcdurl.Parse("etcd://ann:secret@10.0.0.1,10.0.0.2,10.0.0.3/orders")
	if err != nil {
		fmt.Println(err)
		return
	}
	cli, err := url.Open() // connects to nothing
	if err != nil {
		fmt.Println(err)
		return
	}
	defer cli.Close()
	locks := dibs.New(etcdstore.New(cli, url.Options()...))
	defer locks.Close()
	fmt.Println(url)
	// Output: etcd://10.0.0.1:2379,10.0.0.2:2379,10.0.0.3:2379/orders/
}

func FuzzURL(f *testing.F) {
	urltest.Fuzz(f, etcdurl.Parse, "etcd", []string{
		"host", "host:1/a%2Fb?dial_timeout=3s", "[::1],a:4//x", "h/?ca=/none", "h//%40%25", "h/a;b:c", "@/d?a=b#c", "%41/d", "h/%00?ca&%zz", "[::ffff:1.2.3.4]/a//b//",
	}, func(u, again *etcdurl.URL) error {
		if again.Prefix() != u.Prefix() {
			return fmt.Errorf("the prefix %q and then %q", u.Prefix(), again.Prefix())
		}
		return nil
	})
}

func TestNoTextShowsPartOfAPassword(t *testing.T) {
	t.Parallel()
	urltest.WantNoPassword(t, etcdurl.Parse, "etcd", []string{"@", ","}, []string{"", "@host", "@host/p", "@host:port", "@host:99999", "@/p", "@a,b/p", "@host?ca=no", "@host?dial_timeout=x", "@host?a=%zz", "@[::1"})
}
