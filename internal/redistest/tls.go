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

// errNoTLS says that the server knows no option that begins with "tls-".
var errNoTLS = errors.New("redis-server is built without TLS")

// StartTLS is [Start] for a server that has a port with TLS as well: TLSAddr. The
// plain one stays, because this package speaks no TLS; what a test of TLS is about
// uses TLSAddr and the returned configuration. That one trusts the authority which
// has signed the server's certificate, and no other; both are made for this test.
// The server asks for no certificate of the client unless args tell it to.
//
// Where the server is built without TLS the test is skipped as if there were none.
func StartTLS(t testing.TB, args ...string) (*Server, *tls.Config) {
	t.Helper()
	dir := t.TempDir()
	secrets, err := newSecrets(dir)
	if err != nil {
		t.Fatal(err)
	}
	s := attend(t, &Server{dir: dir, args: args, secrets: secrets})
	return s, &tls.Config{RootCAs: secrets.trusted, ServerName: "127.0.0.1", MinVersion: tls.VersionTLS12}
}

// TLSAddr is the host:port where a server of StartTLS speaks TLS. It never
// changes.
func (s *Server) TLSAddr() string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.tls))
}

// CAFile is the file with the authority that has signed the certificate of a server
// of StartTLS, in PEM; CertFile and KeyFile are a certificate that it has signed.
func (s *Server) CAFile() string { return s.secrets.ca }

// CertFile is beside CAFile.
func (s *Server) CertFile() string { return s.secrets.cert }

// KeyFile is beside CAFile.
func (s *Server) KeyFile() string { return s.secrets.key }

// secrets are what a server needs to speak TLS.
type secrets struct {
	trusted       *x509.CertPool
	ca, cert, key string // files
}

func (s *secrets) arguments(port int) []string {
	return []string{
		"--tls-port", strconv.Itoa(port),
		"--tls-ca-cert-file", s.ca,
		"--tls-cert-file", s.cert,
		"--tls-key-file", s.key,
		"--tls-auth-clients", "no",
	}
}

// withoutTLS recognizes the complaint of a server about an unknown option.
func withoutTLS(log string) bool {
	return strings.Contains(log, "tls-port") && strings.Contains(log, "Bad directive")
}

// newSecrets makes an authority and a certificate for 127.0.0.1 that it has
// signed, and writes them to dir.
func newSecrets(dir string) (*secrets, error) {
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
	s := &secrets{
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

// certify makes a certificate that is good for a day, signed by an issuer or, if
// that is nil, by itself. It is valid since an hour ago: not all clocks agree.
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
