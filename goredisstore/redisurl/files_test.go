package redisurl

import (
	"crypto/tls"
	"errors"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/internal/test/urltest"
)

func write(t *testing.T, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestFiles(t *testing.T) {
	_, cert, key := urltest.Certify(t, "h")
	for _, prefix := range []string{"rediss://h?", "rediss+sentinel://h/m?", "rediss+cluster://h?"} {
		u := mustParse(t, prefix+"ca="+url.PathEscape(cert)+"&cert="+url.PathEscape(cert)+"&key="+url.PathEscape(key))
		config := options(t, u).TLSConfig
		if config.RootCAs == nil || len(config.Certificates) != 1 || config.MinVersion != tls.VersionTLS12 {
			t.Errorf("%s: want a CA and a certificate, have %+v", prefix, config)
		}
		if before := u.options.TLSConfig; before.RootCAs != nil || before.Certificates != nil {
			t.Errorf("%s: Open changed the URL", prefix)
		}
	}
	if config := options(t, mustParse(t, "rediss://h")).TLSConfig; config.RootCAs != nil || config.Certificates != nil {
		t.Errorf("without files: want the system's CAs and no certificate, have %+v", config)
	}
}

func TestBadFiles(t *testing.T) {
	dir := t.TempDir()
	_, cert, key := urltest.Certify(t, "a")
	escape := url.PathEscape
	_, _, other := urltest.Certify(t, "b")
	none := filepath.Join(dir, "none")
	empty := write(t, dir, "empty", "")
	for _, c := range []struct {
		query string
		want  string
		is    error
	}{
		{"ca=" + none, `ca: open ` + none + `: no such file or directory`, fs.ErrNotExist},
		{"ca=" + empty, `ca: no certificate in "` + empty + `"`, nil},
		{"ca=" + escape(key), `ca: no certificate in "` + key + `"`, nil},
		{"cert=" + none + "&key=" + escape(key), `cert and key: open ` + none + `: no such file or directory`, fs.ErrNotExist},
		{"cert=" + escape(cert) + "&key=" + none, `cert and key: open ` + none + `: no such file or directory`, fs.ErrNotExist},
		{"cert=" + escape(cert) + "&key=" + escape(other), `cert and key: tls: private key does not match public key`, nil},
	} {
		_, err := mustParse(t, "rediss://h?"+c.query).Open()
		if err == nil || strings.TrimPrefix(err.Error(), "dibs: invalid Redis URL: ") != c.want {
			t.Errorf("%s:\nwant %s\nhave %v", c.query, c.want, err)
			continue
		}
		if !errors.Is(err, dibs.ErrInvalid) || c.is != nil && !errors.Is(err, c.is) {
			t.Errorf("%s: want ErrInvalid and %v, have %v", c.query, c.is, err)
		}
	}
}
