// Package tlsadvice explains errors of TLS.
package tlsadvice

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
)

// Explain returns an error of TLS that no retry can change, with advice. It returns nil for
// other errors.
func Explain(err error) error {
	var (
		record   tls.RecordHeaderError
		untried  *tls.CertificateVerificationError
		unknown  x509.UnknownAuthorityError
		hostname x509.HostnameError
	)
	switch {
	case errors.As(err, &record):
		return fmt.Errorf("the server does not use TLS on this port: connect without TLS, or to another port: %w", err)
	case errors.As(err, &hostname):
		return fmt.Errorf("the certificate of the server is for another name: connect to that name, or set the server name of the TLS configuration: %w", err)
	case errors.As(err, &unknown):
		return fmt.Errorf("the certificate of the server is not trusted: add its CA to the TLS configuration: %w", err)
	case errors.As(err, &untried):
		return fmt.Errorf("the certificate of the server is not valid: %w", err)
	}
	return nil
}
