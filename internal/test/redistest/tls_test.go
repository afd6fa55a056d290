package redistest

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"testing"
)

// pingTLS sends a PING over TLS, which Conn does not support.
func pingTLS(s *Server, config *tls.Config) (string, error) {
	conn, err := tls.Dial("tcp", s.TLSAddr(), config)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "PING\r\n"); err != nil {
		return "", err
	}
	return bufio.NewReader(conn).ReadString('\n')
}

func TestTLS(t *testing.T) {
	s, config := StartTLS(t)
	for range 2 {
		if line, err := pingTLS(s, config); err != nil || line != "+PONG\r\n" {
			t.Errorf("got %q, %v", line, err)
		}
		if got := s.MustCmd(t, "PING"); got != "PONG" {
			t.Errorf("the plain port: got %v", got)
		}
		if err := s.Restart(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestTLSTrustsOnlyItsAuthority(t *testing.T) {
	s, _ := StartTLS(t)
	_, others := StartTLS(t)
	_, err := pingTLS(s, others)
	var other x509.UnknownAuthorityError
	if !errors.As(err, &other) {
		t.Errorf("got %v, want an unknown authority", err)
	}
}

func TestServerWithoutTLSIsRecognized(t *testing.T) {
	const log = "*** FATAL CONFIG FILE ERROR (Redis 7.0.15) ***\n" +
		"Reading the configuration file, at line 9\n>>> 'tls-port \"1234\"'\n" +
		"Bad directive or wrong number of arguments\n"
	if !withoutTLS(log) {
		t.Error("a server without TLS is not recognized")
	}
	t.Setenv("DIBS_REQUIRE_REDIS", "")
	if v := runSkipOrFail(errNoTLS); !v.skipped {
		t.Error("the test is not skipped")
	}
}
