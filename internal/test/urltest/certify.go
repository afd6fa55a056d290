package urltest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Certify returns a certificate for a host, and the files with it and its key. The names of the files
// contain special characters of URLs.
func Certify(t *testing.T, host string) (c tls.Certificate, certificate, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{host}, NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	if ip := net.ParseIP(host); ip != nil {
		template.DNSNames, template.IPAddresses = nil, []net.IP{ip}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(name, kind string, der []byte) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	c = tls.Certificate{Certificate: [][]byte{der}, PrivateKey: private, Leaf: leaf}
	return c, write("a + b.crt", "CERTIFICATE", der), write("a + b.key", "PRIVATE KEY", pkcs8)
}
