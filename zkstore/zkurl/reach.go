package zkurl

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"

	"github.com/dibslock/dibs/zkstore/internal/greeting"
)

// Reach explains why a store has no connection: the store returns only that time is over. Reach opens
// a session on each host, and returns nil if one of them serves clients.
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
		dial = (&tls.Dialer{NetDialer: dialer, Config: u.tls}).DialContext
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

// greet opens a session and closes it. In TLS 1.3, a server rejects the client's certificate only
// after the client's handshake.
func greet(conn net.Conn) error {
	session, err := greeting.Greet(conn, 0)
	if err == nil && session.ReadOnly {
		err = errors.New("the server is read-only: it has no majority of servers")
	}
	return err
}
