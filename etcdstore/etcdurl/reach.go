package etcdurl

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
)

// Reach explains why a client has no connection: the client returns only that time is over. Reach
// opens a connection to each host, and returns nil if one of them could be opened.
func (u *URL) Reach(ctx context.Context) error {
	errs := make([]error, len(u.hosts))
	var dials sync.WaitGroup
	for i, host := range u.hosts {
		dials.Go(func() { errs[i] = u.dialHost(ctx, host) })
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

func (u *URL) dialHost(ctx context.Context, host string) error {
	dialer := &net.Dialer{}
	dial := dialer.DialContext
	if u.tls != nil {
		dial = (&tls.Dialer{NetDialer: dialer, Config: u.tls}).DialContext
	}
	conn, err := dial(ctx, "tcp", host)
	var network *net.OpError // its text contains the host
	switch {
	case err == nil:
	case errors.As(err, &network):
		return err
	default:
		return fmt.Errorf("%s: %w", host, err)
	}
	return conn.Close()
}
