package dibscertmagic_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"testing"
	"time"

	"github.com/caddyserver/certmagic"
	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/contrib/dibscertmagic"
	"github.com/dibslock/dibs/internal/test/redistest"
	"github.com/dibslock/dibs/redisstore"
	"go.uber.org/zap"
)

const (
	domain   = "example.com"
	lockName = "issue_cert_" + domain // as CertMagic names it
	dibsName = "certmagic:" + lockName
)

// newRedisClient returns a Client as another process would have.
func newRedisClient(t *testing.T, server *redistest.Server) *dibs.Client {
	t.Helper()
	conn := redistest.Dial(server.Addr())
	locks := dibs.New(redisstore.New(conn))
	t.Cleanup(func() {
		if err := locks.Close(); err != nil {
			t.Error(err)
		}
		conn.Close()
	})
	return locks
}

// An authority issues certificates. It calls issuing before each.
type authority struct {
	key     *ecdsa.PrivateKey
	cert    *x509.Certificate
	issuing func(ctx context.Context) error
}

func newAuthority(issuing func(ctx context.Context) error) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority of the tests"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	return &authority{key: key, cert: cert, issuing: issuing}, err
}

func (a *authority) IssuerKey() string { return "authority" }

func (a *authority) Issue(ctx context.Context, request *x509.CertificateRequest) (*certmagic.IssuedCertificate, error) {
	if err := a.issuing(ctx); err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), DNSNames: request.DNSNames,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(12 * time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, request.PublicKey, a.key)
	if err != nil {
		return nil, err
	}
	return &certmagic.IssuedCertificate{Certificate: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}, nil
}

// newInstance returns CertMagic as a process would use it, and a function to end it.
func newInstance(storage certmagic.Storage, issuer certmagic.Issuer) (*certmagic.Config, func()) {
	var config *certmagic.Config
	cache := certmagic.NewCache(certmagic.CacheOptions{
		GetConfigForCert: func(certmagic.Certificate) (*certmagic.Config, error) { return config, nil },
		Logger:           zap.NewNop(),
	})
	config = certmagic.New(cache, certmagic.Config{
		Storage:   storage,
		Issuers:   []certmagic.Issuer{issuer},
		KeySource: certmagic.StandardKeyGenerator{KeyType: certmagic.P256},
		OCSP:      certmagic.OCSPConfig{DisableStapling: true},
		Logger:    zap.NewNop(),
	})
	return config, cache.Stop
}

func newStorage(t *testing.T, dir string, locks *dibs.Client, options ...dibs.Option) *dibscertmagic.Storage {
	t.Helper()
	return dibscertmagic.New(&certmagic.FileStorage{Path: dir}, locks, options...)
}

// waitFor waits until this many instances wait for the lock.
func waitFor(ctx context.Context, locks *dibs.Client, waiting int) error {
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		state, err := locks.Inspect(ctx, dibsName)
		if err != nil || state.Waiting >= waiting {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%d instances wait, want %d", state.Waiting, waiting)
		}
	}
}

func wantError(t *testing.T, err error, want ...error) {
	t.Helper()
	for _, target := range want {
		if !errors.Is(err, target) {
			t.Errorf("got %v, want %v", err, target)
		}
	}
}

func noError(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
