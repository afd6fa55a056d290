package pgurl_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/internal/test/urltest"
	"github.com/dibslock/dibs/pgstore"
	"github.com/dibslock/dibs/pgstore/pgurl"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

func parse(t *testing.T, rawURL string) *pgurl.URL {
	t.Helper()
	u, err := pgurl.Parse(rawURL)
	if err != nil {
		t.Fatalf("%s: %v", rawURL, err)
	}
	return u
}

func TestString(t *testing.T) {
	for rawURL, want := range map[string]string{
		"postgres://host/db": "postgres://host:5432/db",
		"PostgreSQL://ann:s3cret@host:5433/db?sslmode=disable":   "postgres://host:5433/db",
		"postgresql://ann@a,b:2/db?target_session_attrs=primary": "postgres://a:5432,b:2/db",
		"postgres://[::1]/a%2Fb":                                 "postgres://[::1]:5432/a%2Fb",
		"postgres:///db?host=/run/pg&password=s3cret":            "postgres:///db?host=/run/pg",
		"postgres://host/db?dibs_schema=my%20locks":              "postgres://host:5432/db?dibs_schema=my+locks",
		"postgres://host/db?dibs_schema=dibs&dibs_poll=true":     "postgres://host:5432/db",
	} {
		if have := parse(t, rawURL).String(); have != want {
			t.Errorf("%s: have %s, want %s", rawURL, have, want)
		}
	}
}

func TestMalformedURLShowsNoPassword(t *testing.T) {
	urltest.WantErrors(t, pgurl.Parse, map[string]string{
		"redis://:s3cret@host":                                              "want postgres://",
		"postgres://ann:12/s3cret@host/db":                                  "write @ as %40",
		"postgres://ann:p@s3cret@host/db":                                   "write @ as %40",
		"postgres://ann:s3cret%zz@host/db":                                  "malformed",
		"postgres://host:s3cret/db":                                         "invalid port",
		"postgres://ann:s3cret@host:99999/db":                               "invalid port",
		"postgres://ann:s3 cret@host/db":                                    "as %20",
		"postgres://ann:#s3cret@host/db":                                    "as %23",
		"postgres://ann:s3cret@host/db?sslmode=no":                          "sslmode is invalid",
		"postgres://ann:s3cret@host/db?sslmode=verify-ca&sslrootcert=/none": "/none",
		"postgres://ann:s3cret@host/db?pool_max_conns=0":                    "pool_max_conns too small",
		"postgres://ann:s3cret@host/db?password=s3cret%z":                   "malformed",
		"postgres://ann:s3cret@host/db?dibs_schema=":                        "dibs_schema",
		"postgres://ann:s3cret@host/db?dibs_poll=s3cret":                    "dibs_poll: want true or false",
		"postgres://ann:s3cret@host/db?dibs_shema=s3cret":                   "want dibs_schema or dibs_poll",
	})
}

func TestCredentials(t *testing.T) {
	t.Setenv("PGPASSWORD", "of libpq")
	t.Setenv("PGUSER", "libpq")
	environment := pgurl.Environment(func(name string) string {
		return map[string]string{"DIBS_USERNAME": "bob", "DIBS_PASSWORD": "of bob"}[name]
	})
	for _, c := range []struct {
		rawURL string
		with   pgurl.Credentials
		want   pgurl.Credentials
	}{
		{"postgres://host/db", environment, environment},
		{"postgres://ann@host/db", environment, pgurl.Credentials{Username: "ann", Password: "of bob"}},
		{"postgres://host/db?user=ann", environment, pgurl.Credentials{Username: "ann", Password: "of bob"}},
		{"postgres://ann:hers@host/db", environment, pgurl.Credentials{Username: "ann", Password: "hers"}},
		{"postgres://host/db", pgurl.Credentials{}, pgurl.Credentials{Username: "libpq", Password: "of libpq"}},
	} {
		conn := parse(t, c.rawURL).With(c.with).Config().ConnConfig
		if have := (pgurl.Credentials{Username: conn.User, Password: conn.Password}); have != c.want {
			t.Errorf("%s: have %v, want %v", c.rawURL, have, c.want)
		}
	}
}

func TestParameters(t *testing.T) {
	config := parse(t, "postgres://host/db?dibs_schema=s&application_name=web&dibs_poll=1").Config()
	for name := range config.ConnConfig.RuntimeParams {
		if name != "application_name" {
			t.Errorf("%s is sent to the server", name)
		}
	}
	if config.MaxConns != 4 || config.ConnConfig.DefaultQueryExecMode != pgx.QueryExecModeCacheDescribe {
		t.Errorf("have %d connections and mode %v", config.MaxConns, config.ConnConfig.DefaultQueryExecMode)
	}
	if limit := config.ConnConfig.ConnectTimeout; limit != 5*time.Second {
		t.Errorf("a connection is opened within %v, want 5s", limit)
	}
	config = parse(t, "postgres://host/db?connect_timeout=9&pool_max_conns=9&dibs_poll=true&default_query_exec_mode=cache_statement").Config()
	if config.MaxConns != 9 || config.ConnConfig.ConnectTimeout != 9*time.Second || config.ConnConfig.DefaultQueryExecMode != pgx.QueryExecModeCacheStatement {
		t.Errorf("have %d connections within %v and mode %v", config.MaxConns, config.ConnConfig.ConnectTimeout, config.ConnConfig.DefaultQueryExecMode)
	}
}

func TestIs(t *testing.T) {
	for text, want := range map[string]bool{"postgres://h": true, "POSTGRESQL://h": true, "redis://h": false, "postgres:h": false, "": false} {
		if pgurl.Is(text) != want {
			t.Errorf("%q: want %t", text, want)
		}
	}
}

func ExampleParse() {
	url, err := pgurl.Parse("postgres://ann:secret@db.internal/orders?dibs_schema=locks")
	if err != nil {
		fmt.Println(err)
		return
	}
	pool, err := pgxpool.NewWithConfig(context.Background(), url.Config()) // connects to nothing
	if err != nil {
		fmt.Println(err)
		return
	}
	defer pool.Close()
	locks := dibs.New(pgstore.New(pool, url.Options()...))
	defer locks.Close()
	fmt.Println(url)
	// Output: postgres://db.internal:5432/orders?dibs_schema=locks
}

func TestNoTextShowsPartOfAPassword(t *testing.T) {
	urltest.WantNoPassword(t, pgurl.Parse, "postgres", []string{"@"}, []string{"", "@host", "@host/db", "@host:port/db", "@host:99999/db", "@/db", "@host,/db", "@host/db?sslmode=no", "@host/db?pool_max_conns=0", "@host/db?connect_timeout=x", "@host/db?dibs_poll=x", "@host/db?a=%zz", "@host/db?sslmode=verify-ca&sslrootcert=/none", "@[::1/db"})
}
