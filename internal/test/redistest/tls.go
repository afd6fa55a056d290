package redistest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// errNoTLS means the server does not know the tls- options.
var errNoTLS = errors.New("redis-server is built without TLS")

// StartTLS is [Start] for a server with an additional TLS port: TLSAddr. This package itself uses
// the plain port, because it has no TLS client. TLS tests use TLSAddr and the returned
// configuration, which trusts only the authority behind the server's certificate. Both are created
// for this test. The server requires no client certificate unless args say so.
//
// If the server has no TLS support, the test is skipped, as without a server.
func StartTLS(t testing.TB, args ...string) (*Server, *tls.Config) {
	t.Helper()
	dir := t.TempDir()
	files, err := newTLSFiles(dir)
	if err != nil {
		t.Fatal(err)
	}
	s := startOne(t, &Server{dir: dir, args: args, tlsFiles: files})
	return s, &tls.Config{RootCAs: files.trusted, ServerName: "127.0.0.1", MinVersion: tls.VersionTLS12}
}

// TLSAddr returns the TLS port's host:port, for a server from StartTLS. It never changes.
func (s *Server) TLSAddr() string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.tls))
}

// CAFile returns the PEM file with the authority's certificate, for a server from StartTLS.
// CertFile and KeyFile are a certificate signed by it.
func (s *Server) CAFile() string { return s.tlsFiles.ca }

// CertFile returns a certificate file; see CAFile.
func (s *Server) CertFile() string { return s.tlsFiles.cert }

// KeyFile returns the key file for CertFile; see CAFile.
func (s *Server) KeyFile() string { return s.tlsFiles.key }

// tlsFiles are a server's files for TLS.
type tlsFiles struct {
	trusted       *x509.CertPool
	ca, cert, key string // files
}

func (s *tlsFiles) arguments(port int) []string {
	return []string{
		"--tls-port", strconv.Itoa(port),
		"--tls-ca-cert-file", s.ca,
		"--tls-cert-file", s.cert,
		"--tls-key-file", s.key,
		"--tls-auth-clients", "no",
	}
}

// withoutTLS recognizes a server's complaint about an unknown option.
func withoutTLS(log string) bool {
	return strings.Contains(log, "tls-port") && strings.Contains(log, "Bad directive") || strings.Contains(log, "Failed finding TLS support")
}

// newTLSFiles creates an authority and a certificate for 127.0.0.1 signed by it, and
// writes them to dir.
func newTLSFiles(dir string) (*tlsFiles, error) {
	authority, err := certify(&x509.Certificate{
		Subject:  pkix.Name{CommonName: "redistest authority"},
		IsCA:     true,
		KeyUsage: x509.KeyUsageCertSign,
	}, nil)
	if err != nil {
		return nil, err
	}
	server, err := certify(&x509.Certificate{
		Subject:     pkix.Name{CommonName: "redistest"},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		DNSNames:    []string{"localhost"},
	}, authority)
	if err != nil {
		return nil, err
	}
	s := &tlsFiles{
		trusted: x509.NewCertPool(),
		ca:      filepath.Join(dir, "ca.pem"),
		cert:    filepath.Join(dir, "cert.pem"),
		key:     filepath.Join(dir, "key.pem"),
	}
	s.trusted.AddCert(authority.cert)
	key, err := x509.MarshalPKCS8PrivateKey(server.key)
	if err != nil {
		return nil, err
	}
	return s, errors.Join(
		writePEM(s.ca, "CERTIFICATE", authority.cert.Raw),
		writePEM(s.cert, "CERTIFICATE", server.cert.Raw),
		writePEM(s.key, "PRIVATE KEY", key),
	)
}

// An identity is a certificate and its key.
type identity struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// certify creates a certificate for a day, signed by issuer, or by itself if issuer is nil. It is
// valid from an hour ago, because clocks differ.
func certify(template *x509.Certificate, issuer *identity) (*identity, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	if template.SerialNumber, err = rand.Int(rand.Reader, big.NewInt(1<<62)); err != nil {
		return nil, err
	}
	template.BasicConstraintsValid = true
	template.NotBefore = time.Now().Add(-time.Hour)
	template.NotAfter = time.Now().Add(24 * time.Hour)
	if issuer == nil {
		issuer = &identity{template, key}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, issuer.cert, &key.PublicKey, issuer.key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &identity{cert, key}, nil
}

func writePEM(file, kind string, der []byte) error {
	return os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
}
