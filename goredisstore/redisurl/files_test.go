package redisurl

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io/fs"
	"math/big"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dibslock/dibs"
)

// writePair writes a certificate and its key, and returns their paths.
func writePair(t *testing.T, dir, name string) (cert, key string) {
	t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Unix(0, 0), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, public, private)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	cert = write(t, dir, name+".crt", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
	key = write(t, dir, name+".key", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8})))
	return cert, key
}

func write(t *testing.T, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestFiles(t *testing.T) {
	dir := t.TempDir()
	cert, key := writePair(t, dir, "a + b") // special characters in a query
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
	cert, key := writePair(t, dir, "a")
	_, other := writePair(t, dir, "b")
	none := filepath.Join(dir, "none")
	empty := write(t, dir, "empty", "")
	for _, c := range []struct {
		query string
		want  string
		is    error
	}{
		{"ca=" + none, `ca: open ` + none + `: no such file or directory`, fs.ErrNotExist},
		{"ca=" + empty, `ca: no certificate in "` + empty + `"`, nil},
		{"ca=" + key, `ca: no certificate in "` + key + `"`, nil},
		{"cert=" + none + "&key=" + key, `cert and key: open ` + none + `: no such file or directory`, fs.ErrNotExist},
		{"cert=" + cert + "&key=" + none, `cert and key: open ` + none + `: no such file or directory`, fs.ErrNotExist},
		{"cert=" + cert + "&key=" + other, `cert and key: tls: private key does not match public key`, nil},
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
