package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/dashboard/view"
	"github.com/dibslock/dibs/driver"
)

// explain adds the store's location and a hint to a store error.
func (o *opened) explain(err error) error {
	if err == nil || silent(err) {
		return err
	}
	var lines []string
	switch {
	case errors.Is(err, dibs.ErrWrongType):
		lines = append(lines, "to see what it is: dibs show NAME")
		if f := foreignIn(err); f != nil {
			text, _ := strings.CutSuffix(view.ErrorText(err), "; "+f.Advice)
			err, lines = rephrased{err, text}, strings.Split(f.Advice, "; ")
		}
	case errors.Is(err, dibs.ErrLost):
	case errors.Is(err, driver.ErrNoTables):
		lines = append(lines, "to create the tables: dibs migrate")
	case badCertificate(err):
		lines = append(lines, "to trust the certificate: ca=FILE in the URL, and server_name=NAME if it is for another name")
	case errors.Is(err, context.DeadlineExceeded), strings.Contains(err.Error(), "no reply in time"):
		why := o.whySilent()
		if why == nil {
			lines = append(lines, "if the store is slow or has very many keys, allow more time: --timeout 30s")
			break
		}
		lines = append(lines, "no server can be reached: "+why.Error())
		for _, scheme := range []string{"etcd", "zk"} {
			if strings.HasPrefix(o.location, scheme+"://") {
				lines = append(lines, "if this port is for TLS: "+scheme+"s://")
			}
		}
	case errors.Is(err, dibs.ErrUnavailable):
		lines = append(lines, "to check the store: dibs doctor")
	default:
		return err
	}
	if errors.Is(err, dibs.ErrUnavailable) && timedOut(err) && strings.HasPrefix(o.location, "rediss") {
		lines = append(lines, "rediss:// needs a server with TLS: a server without TLS does not answer")
	}
	if errors.Is(err, dibs.ErrUnavailable) && hungUp(err) && strings.HasPrefix(o.location, "redis") && !strings.HasPrefix(o.location, "rediss") {
		lines = append(lines, "if this port is for TLS, which ends connections without TLS: rediss://")
		if !o.proxied {
			lines = append(lines, "if this is a proxy, such as twemproxy: proxy=true in the URL")
		}
	}
	lines = append([]string{"", "store: " + o.location}, lines...)
	return fmt.Errorf("%w%s", err, strings.Join(lines, "\n"))
}

// timedOut reports whether err is a timeout, judging by its text: the store's errors contain no
// other sign.
func timedOut(err error) bool {
	text := err.Error()
	return strings.Contains(text, "no answer") || strings.Contains(text, "no reply") || strings.Contains(text, "timeout") || strings.Contains(text, "deadline")
}

// badCertificate reports whether a store's certificate was rejected.
func badCertificate(err error) bool {
	var (
		rejected *tls.CertificateVerificationError
		unknown  x509.UnknownAuthorityError
		hostname x509.HostnameError
	)
	return errors.As(err, &rejected) || errors.As(err, &unknown) || errors.As(err, &hostname)
}

// hungUp reports whether the store ended a connection.
func hungUp(err error) bool { return errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) }

// A rephrased is an error with another text.
type rephrased struct {
	error
	text string
}

func (r rephrased) Error() string { return r.text }

func (r rephrased) Unwrap() error { return r.error }

// foreignIn returns an error's description of a value that dibs did not write, or nil.
func foreignIn(err error) *driver.Foreign {
	var wrong *driver.WrongTypeError
	if !errors.As(err, &wrong) {
		return nil
	}
	return wrong.State.Foreign
}
