package zkurl_test

import (
	"fmt"
	"testing"

	"github.com/dibslock/dibs/internal/test/urltest"
	"github.com/dibslock/dibs/zkstore"
	"github.com/dibslock/dibs/zkstore/zkurl"
)

func parse(t *testing.T, rawURL string) *zkurl.URL {
	t.Helper()
	u, err := zkurl.Parse(rawURL)
	if err != nil {
		t.Fatalf("%s: %v", rawURL, err)
	}
	return u
}

func TestString(t *testing.T) {
	t.Parallel()
	for rawURL, want := range map[string]string{
		"zk://host":  "zk://host:2181",
		"zk://host/": "zk://host:2181",
		"ZK://ann:s3cret@a:1,b,a:1?connect_timeout=1s&format=kazoo&tick=500ms": "zk://a:1,b:2181",
		"zks://[::1],10.0.0.1:4/team/locks/":                                   "zks://[::1]:2181,10.0.0.1:4/team/locks",
		"zk://host/a%20b%40c%2Fd":                                              "zk://host:2181/a%20b%40c/d",
	} {
		if have := parse(t, rawURL).String(); have != want {
			t.Errorf("%s: have %s, want %s", rawURL, have, want)
		}
	}
}

func TestPrefix(t *testing.T) {
	t.Parallel()
	for rawURL, want := range map[string]string{
		"zk://host": "", "zk://host/": "", "zk://host/a": "/a", "zk://host/a/": "/a", "zk://host/chroot/locks": "/chroot/locks", "zk://host/a%2Fb%40": "/a/b@",
	} {
		if have := parse(t, rawURL).Prefix(); have != want {
			t.Errorf("%s: have %q, want %q", rawURL, have, want)
		}
	}
}

func TestFormat(t *testing.T) {
	t.Parallel()
	for rawURL, want := range map[string]zkstore.NodeFormat{
		"zk://host": zkstore.Curator, "zk://host?format=curator": zkstore.Curator, "zk://host?format=kazoo": zkstore.Kazoo,
	} {
		if have := parse(t, rawURL).Format(); have != want {
			t.Errorf("%s: have %v, want %v", rawURL, have, want)
		}
	}
}

func TestMalformedURLShowsNoPassword(t *testing.T) {
	t.Parallel()
	urltest.WantErrors(t, zkurl.Parse, map[string]string{
		"redis://:s3cret@host":                        "want zk://",
		"zk://ann:12/s3cret@host":                     "write @ as %40",
		"zk://ann:p@s3cret@host":                      "write @ as %40",
		"zk://ann:s3cret%zz@host":                     "write % itself as %25",
		"zk://host:s3cret":                            "malformed port",
		"zk://ann:s3cret@host:99999":                  "malformed port",
		"zk://ann:s3cret@host:0":                      "malformed port",
		"zk://ann:s3cret@::1":                         "no host",
		"zk://ann:s3cret@2001:db8::1":                 "as [::1]",
		"zk://ann:s3cret@[::1%25eth0]":                "without a zone",
		"zk://ann:s3cret@[::1":                        "malformed host",
		"zk://ann:s3cret@a,,b":                        "no host",
		"zk://ann:s3cret@":                            "no host",
		"zk://":                                       "no host",
		"zk://ann:s3 cret@host":                       "as %20",
		"zk://ann:#s3cret@host":                       "as %23",
		"zk://:s3cret@host":                           "a password without a user",
		"zk://a%3As3cret@host":                        "a user with a colon",
		"zk://ann:s3cret@host/%00":                    "control character",
		"zk://ann:s3cret@host/%ff":                    "UTF-8",
		"zk://ann:s3cret@host//a":                     "empty name",
		"zk://ann:s3cret@host/a//b":                   "empty name",
		"zk://ann:s3cret@host/a/..":                   "contains . or .., or an empty name",
		"zk://ann:s3cret@host?connect_timeout=s3cret": "connect_timeout: want a duration",
		"zk://ann:s3cret@host?tick=-1s":               "tick: want a duration",
		"zk://ann:s3cret@host?format=s3cret":          "format: not curator or kazoo",
		"zk://ann:s3cret@host?connect_timeout=1s&connect_timeout=2s": "connect_timeout is given twice",
		"zk://ann:s3cret@host?conect_timeout=s3cret":                 "want connect_timeout",
		"zk://ann:s3cret@host?ca=/none":                              "with zks://",
		"zks://ann:s3cret@host?ca=":                                  "ca: no value",
		"zks://ann:s3cret@host?ca=/none":                             "/none",
		"zks://ann:s3cret@host?ca=zkurl.go":                          "no certificate",
		"zks://ann:s3cret@host?cert=/none":                           "together",
		"zks://ann:s3cret@host?cert=/none&key=/none":                 "/none",
		"zks://ann:s3cret@host?insecure_skip_verify=1":               "not true or false",
		"zk://ann:s3cret@host?a=1;b=s3cret":                          "as %3B",
		"zk://ann:s3cret@host?tick=%zzs3cret":                        "as %25",
	})
}

func TestCredentials(t *testing.T) {
	t.Parallel()
	environment := zkurl.Environment(func(name string) string {
		return map[string]string{"DIBS_USERNAME": "bob", "DIBS_PASSWORD": "of bob"}[name]
	})
	for _, c := range []struct {
		rawURL string
		want   zkurl.Credentials
	}{
		{"zk://host", environment},
		{"zk://ann@host", zkurl.Credentials{Username: "ann", Password: "of bob"}},
		{"zk://ann:h%40r%2Fs:@host", zkurl.Credentials{Username: "ann", Password: "h@r/s:"}},
	} {
		if have := parse(t, c.rawURL).With(environment).Credentials(); have != c.want {
			t.Errorf("%s: have %v, want %v", c.rawURL, have, c.want)
		}
	}
}

func TestIs(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{"zk://h": true, "ZKS://h": true, "redis://h": false, "zk:h": false, "": false} {
		if zkurl.Is(text) != want {
			t.Errorf("%q: want %t", text, want)
		}
	}
}

func FuzzURL(f *testing.F) {
	urltest.Fuzz(f, zkurl.Parse, "zk", []string{
		"host", "host:1/a%2Fb?connect_timeout=3s&format=kazoo", "[::1],a:4//x", "h/?ca=/none", "h/%40%25", "h/a;b:c", "@/d?a=b#c", "%41/d", "h/%00?ca&%zz", "[::ffff:1.2.3.4]/a/b/",
	}, func(u, again *zkurl.URL) error {
		if again.Prefix() != u.Prefix() {
			return fmt.Errorf("the prefix %q and then %q", u.Prefix(), again.Prefix())
		}
		return nil
	})
}

func TestNoTextShowsPartOfAPassword(t *testing.T) {
	t.Parallel()
	urltest.WantNoPassword(t, zkurl.Parse, "zk", []string{"@", ","}, []string{"", "@host", "@host/p", "@host:port", "@host:99999", "@/p", "@a,b/p", "@host?ca=no", "@host?tick=x", "@host?a=%zz", "@[::1"})
}
