package mysqlurl_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/url"
	"testing"
	"time"

	"github.com/dibslock/dibs/internal/test/urltest"
	"github.com/go-sql-driver/mysql"
)

var errVerified = errors.New("the client has accepted the certificate")

// serve serves a single connection, until TLS is established or refused.
func serve(conn net.Conn, certificate tls.Certificate) error {
	greeting := append([]byte{10}, "8.0.36\x00"...)
	greeting = append(greeting, 1, 0, 0, 0)        // connection
	greeting = append(greeting, "12345678\x00"...) // for the password
	greeting = append(greeting, 0, 0x8a)           // it can do TLS
	greeting = append(greeting, 45, 2, 0, 8, 0, 21)
	greeting = append(greeting, make([]byte, 10)...)
	greeting = append(greeting, "123456789012\x00mysql_native_password\x00"...)
	if _, err := conn.Write(append([]byte{byte(len(greeting)), 0, 0, 0}, greeting...)); err != nil {
		return err
	}
	if _, err := io.ReadFull(conn, make([]byte, 4+32)); err != nil { // the request for TLS
		return err
	}
	server := tls.Server(conn, &tls.Config{MinVersion: tls.VersionTLS12, MaxVersion: tls.VersionTLS12, Certificates: []tls.Certificate{certificate}})
	if err := server.Handshake(); err != nil {
		return err
	}
	return errVerified
}

// The certificate is for the URL's host.
func TestCertificateOfHost(t *testing.T) {
	t.Parallel()
	own, ca, _ := urltest.Certify(t, "db.example")
	other, otherCA, _ := urltest.Certify(t, "other.example")
	home, homeCA, _ := urltest.Certify(t, "127.0.0.1")
	for _, c := range []struct {
		query       string
		certificate tls.Certificate
		verified    bool
	}{
		{"ca=" + url.QueryEscape(ca), own, true},
		{"ca=" + url.QueryEscape(ca) + "&tls=true", own, true},
		{"ca=" + url.QueryEscape(ca), other, false},
		{"ca=" + url.QueryEscape(otherCA), other, false},
		{"ca=" + url.QueryEscape(homeCA), home, false},
		{"tls=skip-verify", other, true},
	} {
		config := parse(t, "mysql://ann@db.example/db?"+c.query).Config()
		if err := connect(t, config, c.certificate); errors.Is(err, errVerified) != c.verified {
			t.Errorf("%s: want verified %t, have %v", c.query, c.verified, err)
		}
	}
}

// connect opens a connection to a server with a certificate, and returns the server's error.
func connect(t *testing.T, config *mysql.Config, certificate tls.Certificate) error {
	t.Helper()
	ended := make(chan error, 1)
	config.DialFunc = func(context.Context, string, string) (net.Conn, error) {
		client, server := net.Pipe()
		go func() {
			defer server.Close()
			_ = server.SetDeadline(time.Now().Add(10 * time.Second))
			ended <- serve(server, certificate)
		}()
		return client, nil
	}
	connector, err := mysql.NewConnector(config)
	if err != nil {
		t.Fatal(err)
	}
	if conn, err := connector.Connect(t.Context()); err == nil {
		conn.Close()
		t.Error("a server that does not log in")
	}
	return <-ended
}

// With tls=true, too, the name should be the host's. The system's authorities are used.
func TestNameOfHost(t *testing.T) {
	t.Parallel()
	for _, query := range []string{"tls=true", "tls=1"} {
		config := parse(t, "mysql://ann@db.example/db?"+query).Config()
		names := make(chan string, 1)
		certificate, _, _ := urltest.Certify(t, "db.example")
		config.TLS.VerifyConnection = func(s tls.ConnectionState) error {
			names <- s.ServerName
			return errors.New("enough")
		}
		config.TLS.RootCAs = x509.NewCertPool()
		config.TLS.RootCAs.AddCert(certificate.Leaf)
		_ = connect(t, config, certificate) // VerifyConnection ended it
		select {
		case name := <-names:
			if name != "db.example" {
				t.Errorf("%s: have %s", query, name)
			}
		default:
			t.Errorf("%s: the certificate was not accepted", query)
		}
	}
}
