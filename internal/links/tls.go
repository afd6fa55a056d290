package links

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
)

// A MismatchError reports that either the server or the client uses TLS.
type MismatchError struct {
	Addr string
	TLS  bool // the server does
}

func (e *MismatchError) Error() string {
	if e.TLS {
		return fmt.Sprintf("the server at %s speaks TLS, and the client does not: use rediss:// in a URL, or a TLS configuration", e.Addr)
	}
	return fmt.Sprintf("the server at %s does not speak TLS, and the client does: use redis:// in a URL, no TLS configuration, or another port", e.Addr)
}

// ExplainTLS returns an error of TLS that no retry can change, with advice. It returns nil for
// other errors.
func ExplainTLS(err error) error {
	var (
		record   tls.RecordHeaderError
		untried  *tls.CertificateVerificationError
		unknown  x509.UnknownAuthorityError
		hostname x509.HostnameError
	)
	var mismatch *MismatchError
	switch {
	case errors.As(err, &mismatch):
		return mismatch
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
