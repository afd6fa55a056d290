package mysqlurl_test

import (
	"database/sql"
	"fmt"
	"strings"
	"testing"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/internal/test/urltest"
	"github.com/dibslock/dibs/mysqlstore"
	"github.com/dibslock/dibs/mysqlstore/mysqlurl"
	"github.com/go-sql-driver/mysql"
)

func parse(t *testing.T, rawURL string) *mysqlurl.URL {
	t.Helper()
	u, err := mysqlurl.Parse(rawURL)
	if err != nil {
		t.Fatalf("%s: %v", rawURL, err)
	}
	return u
}

func TestString(t *testing.T) {
	t.Parallel()
	for rawURL, want := range map[string]string{
		"mysql://host/db": "mysql://host:3306/db",
		"MariaDB://ann:s3cret@host:3307/db?timeout=3s": "mysql://host:3307/db",
		"mysql://[::1]/a%2Fb":                          "mysql://[::1]:3306/a%2Fb",
		"mysql://ann@/db?socket=/run/m.sock":           "mysql:///db?socket=%2Frun%2Fm.sock",
		"mysql://host/db?dibs_prefix=my+locks":         "mysql://host:3306/db?dibs_prefix=my+locks",
		"mysql://host/db?dibs_prefix=dibs_&tls=true":   "mysql://host:3306/db",
	} {
		if have := parse(t, rawURL).String(); have != want {
			t.Errorf("%s: have %s, want %s", rawURL, have, want)
		}
	}
}

func TestMalformedURLShowsNoPassword(t *testing.T) {
	t.Parallel()
	urltest.WantErrors(t, mysqlurl.Parse, map[string]string{
		"redis://:s3cret@host":                                              "want mysql://",
		"mysql://ann:12/s3cret@host/db":                                     "write @ as %40",
		"mysql://ann:p@s3cret@host/db":                                      "write @ as %40",
		"mysql://ann:s3cret%zz@host/db":                                     "malformed",
		"mysql://host:s3cret/db":                                            "malformed",
		"mysql://ann:s3 cret@host/db":                                       "malformed",
		"mysql://ann:#s3cret@host/db":                                       "as %23",
		"mysql://ann:s3cret@host/":                                          "no database",
		"mysql://ann:s3cret@host":                                           "no database",
		"mysql://ann:s3cret@/db":                                            "no host",
		"mysql://ann:s3cret@a,b/db":                                         "several hosts",
		"mysql://ann:s3cret@host/db?socket=/x":                              "a host and a socket",
		"mysql://ann:s3cret@host/db?timeout=s3cret":                         "invalid parameter",
		"mysql://ann:s3cret@host/db?tls=s3cret":                             "invalid parameter",
		"mysql://ann:s3cret@host/db?ca=/none":                               "/none",
		"mysql://ann:s3cret@host/db?dibs_prefx=s3":                          "want dibs_prefix",
		"mysql://ann:s3cret@host/db?tls=%zzs3cret":                          "malformed",
		"mysql://ann:s3cret@host/db?a=1;b=s3cret":                           "as %3B",
		"mysql://ann:s3cret@host/db?ca=mysqlurl.go":                         "no certificate",
		"mysql://ann:s3cret@[host/db":                                       "malformed",
		"mysql://ann:s3cret@host/db?strict=s3cret":                          "want sql_mode",
		"mysql://ann:s3cret@host/db?strict":                                 "want sql_mode",
		"mysql://ann:s3cret@host/db?charset=s3 x":                           "charset: want a name",
		"mysql://ann:s3cret@host/db?charset=a%26b=s":                        "charset: want a name",
		"mysql://ann:s3cret@host/db?collation=gbk_bin":                      "collation: ",
		"mysql://ann:s3cret@host/db?ca=":                                    "ca: want a file",
		"mysql://ann:s3cret@host/db?ca=/none&tls=preferred":                 "want ca alone",
		"mysql://ann:s3cret@host/db?ca=/none&tls=skip-verify":               "want ca alone",
		"mysql://ann:s3cret@host/db?ca=/none&tls=false":                     "want ca alone",
		"mysql://ann:s3cret@host/db?ca=/none&allowFallbackToPlaintext=1":    "want ca alone",
		"mysql://ann:s3cret@::1/db":                                         "as [::1]",
		"mysql://ann:s3cret@/db?ca=/none&socket=/run/m":                     "ca and a socket",
		"mysql://ann:s3cret@/db?tls=true&socket=/run/m":                     "TLS and a socket",
		"mysql://ann:s3cret@host/db?dibs_prefix=" + strings.Repeat("s", 48): "prefix of the tables: 48 characters, want up to 47",
		"mysql://ann:s3cret@host/db?dibs_prefix=s3%00":                      "it contains NUL",
		"mysql://ann:s3cret@host/db/other?timeout=1":                        "write @ as %40",
	})
}

func TestCredentials(t *testing.T) {
	t.Parallel()
	environment := mysqlurl.Environment(func(name string) string {
		return map[string]string{"DIBS_USERNAME": "bob", "DIBS_PASSWORD": "of bob"}[name]
	})
	for _, c := range []struct {
		rawURL string
		want   mysqlurl.Credentials
	}{
		{"mysql://host/db", environment},
		{"mysql://ann@host/db", mysqlurl.Credentials{Username: "ann", Password: "of bob"}},
		{"mysql://ann:h%40rs@host/db", mysqlurl.Credentials{Username: "ann", Password: "h@rs"}},
	} {
		config := parse(t, c.rawURL).With(environment).Config()
		if have := (mysqlurl.Credentials{Username: config.User, Password: config.Passwd}); have != c.want {
			t.Errorf("%s: have %v, want %v", c.rawURL, have, c.want)
		}
	}
}

func TestConfig(t *testing.T) {
	t.Parallel()
	config := parse(t, "mysql://host/db?timeout=3s&interpolateParams=false").Config()
	if config.Timeout.Seconds() != 3 || !config.InterpolateParams || config.DBName != "db" || config.TLS != nil {
		t.Errorf("%+v", config)
	}
}

func TestIs(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{"mysql://h": true, "MARIADB://h": true, "redis://h": false, "mysql:h": false, "": false} {
		if mysqlurl.Is(text) != want {
			t.Errorf("%q: want %t", text, want)
		}
	}
}

func TestParameters(t *testing.T) {
	t.Parallel()
	for rawURL, want := range map[string]string{
		"mysql://host/db?charset=utf8mb4,latin1":                  "charset=utf8mb4,latin1",
		"mysql://host/db?collation=utf8mb4_bin&charset=utf8mb4":   "charset=utf8mb4&collation=utf8mb4_bin",
		"mysql://host/db?loc=Europe%2FParis":                      "loc=Europe%2FParis",
		"mysql://host/db?idle_transaction_timeout=60&sql_mode=''": "idle_transaction_timeout=60&sql_mode=%27%27",
		"mysql://host/db?tls=preferred":                           "allowFallbackToPlaintext=true",
	} {
		if have := parse(t, rawURL).Config().FormatDSN(); !strings.Contains(have, want) {
			t.Errorf("%s: have %s, want %s", rawURL, have, want)
		}
	}
}

func ExampleParse() {
	url, err := mysqlurl.Parse("mysql://ann:secret@db.internal/orders?dibs_prefix=locks_")
	if err != nil {
		fmt.Println(err)
		return
	}
	connector, err := mysql.NewConnector(url.Config())
	if err != nil {
		fmt.Println(err)
		return
	}
	db := sql.OpenDB(connector) // connects to nothing
	defer db.Close()
	locks := dibs.New(mysqlstore.New(db, url.Options()...))
	defer locks.Close()
	fmt.Println(url)
	// Output: mysql://db.internal:3306/orders?dibs_prefix=locks_
}

func FuzzURL(f *testing.F) {
	urltest.Fuzz(f, mysqlurl.Parse, "mysql", []string{
		"host/db", "host:1/a%2Fb?tls=true&timeout=3s", "[::1]/db?strict=1", "[fe80::1%25a]/db", "/db?socket=/run/a%20b", "/db?tls=preferred&socket=s",
		"h/d?ca=/none", "h/d?charset=a,b&collation=gbk_bin", "h/d?dibs_prefix=a%60b&sql_mode=%27%27", "h/d?tls=a%2Fb&serverPubKey=x&loc=Local", "@/d?a=b#c",
		"h/d?maxAllowedPacket=-1&connectionAttributes=a:b,c&compress=1", "%41/d", "h/%00?parseTime&%zz",
	}, func(u, _ *mysqlurl.URL) error {
		_, err := mysql.NewConnector(u.Config())
		return err
	})
}

func TestNoTextShowsPartOfAPassword(t *testing.T) {
	urltest.WantNoPassword(t, mysqlurl.Parse, "mysql", []string{"@"}, []string{"", "@host", "@host/db", "@host:port/db", "@host:99999/db", "@/db", "@a,b/db", "@host/db?tls=no", "@host/db?timeout=x", "@host/db?strict=1", "@host/db?charset=@", "@host/db?collation=x", "@host/db?a=%zz", "@host/db?dibs_prefix=!", "@host/db?ca=/none", "@host/db?socket=/s", "@[::1/db"})
}
