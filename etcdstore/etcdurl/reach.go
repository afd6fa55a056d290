package etcdurl

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
)

// Reach explains why a client has no connection: the client returns only that time is over. Reach
// opens a connection to each host, and returns nil if one of them replies.
func (u *URL) Reach(ctx context.Context) error {
	errs := make([]error, len(u.hosts))
	var dials sync.WaitGroup
	for i, host := range u.hosts {
		dials.Go(func() { errs[i] = u.greetHost(ctx, host) })
	}
	dials.Wait()
	var texts []string
	for _, err := range errs {
		if err == nil {
			return nil
		}
		texts = append(texts, err.Error())
	}
	return errors.New(strings.Join(texts, "; "))
}

func (u *URL) greetHost(ctx context.Context, host string) error {
	dialer := &net.Dialer{}
	dial := dialer.DialContext
	if u.tls != nil {
		config := u.tls.Clone()
		config.NextProtos = []string{"h2"}
		dial = (&tls.Dialer{NetDialer: dialer, Config: config}).DialContext
	}
	conn, err := dial(ctx, "tcp", host)
	if err == nil {
		defer conn.Close()
		defer context.AfterFunc(ctx, func() { conn.Close() })()
		err = greet(conn)
	}
	var network *net.OpError
	if errors.As(err, &network) && network.Op == "dial" { // its text contains the host
		return err
	}
	if err != nil {
		return fmt.Errorf("%s: %w", host, err)
	}
	return nil
}

// greet begins HTTP/2. In TLS 1.3, a server rejects the client's certificate only after the
// client's handshake.
func greet(conn net.Conn) error {
	const (
		preface  = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
		settings = 4 // the type of the first frame
	)
	empty := []byte{0, 0, 0, settings, 0, 0, 0, 0, 0}
	if _, err := conn.Write(append([]byte(preface), empty...)); err != nil {
		return err
	}
	frame := make([]byte, len(empty))
	if _, err := io.ReadFull(conn, frame); err != nil {
		return err
	}
	if frame[3] != settings {
		return errors.New("the reply is not HTTP/2: TLS is on at one end only")
	}
	return nil
}
