package redisurl

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
)

// files are the paths to the PEM files for TLS.
type files struct{ ca, cert, key string }

func (f files) check() error {
	if (f.cert == "") != (f.key == "") {
		return errors.New("cert and key must be given together")
	}
	return nil
}

// load returns a copy of the configuration with the files' content.
func (f files) load(config *tls.Config) (*tls.Config, error) {
	config = config.Clone()
	if f.ca != "" {
		pem, err := os.ReadFile(f.ca)
		if err != nil {
			return nil, fmt.Errorf("ca: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("ca: no certificate in %q", f.ca)
		}
	}
	if f.cert != "" {
		pair, err := tls.LoadX509KeyPair(f.cert, f.key)
		if err != nil {
			return nil, fmt.Errorf("cert and key: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}
