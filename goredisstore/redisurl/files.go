package redisurl

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// files are the paths of the PEM files for TLS.
type files struct{ ca, cert, key string }

func (f files) check() error {
	if (f.cert == "") != (f.key == "") {
		return errors.New("cert and key must be given together")
	}
	return nil
}

// load returns a copy of the configuration with the content of the files.
func (f files) load(config *tls.Config) (*tls.Config, error) {
	config = config.Clone()
	if f.ca != "" {
		pem, err := read("ca", f.ca)
		if err != nil {
			return nil, err
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("ca: no certificate in %q", f.ca)
		}
	}
	if f.cert == "" {
		return config, nil
	}
	cert, err := read("cert", f.cert)
	if err != nil {
		return nil, err
	}
	key, err := read("key", f.key)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("cert %q with key %q: %w", f.cert, f.key, err)
	}
	config.Certificates = []tls.Certificate{pair}
	return config, nil
}

// read reads a file. Its errors quote the path, which may contain a line break.
func read(what, path string) ([]byte, error) {
	text, err := os.ReadFile(path)
	var failed *fs.PathError
	if errors.As(err, &failed) {
		err = failed.Err
	}
	if err != nil {
		return nil, fmt.Errorf("%s: cannot read %q: %w", what, path, err)
	}
	return text, nil
}
