package redisconn

import "fmt"

// A TLSMismatchError reports that only the server or only the client uses TLS.
type TLSMismatchError struct {
	Addr string
	TLS  bool // the server does
}

func (e *TLSMismatchError) Error() string {
	if e.TLS {
		return fmt.Sprintf("the server at %s speaks TLS, and the client does not: use rediss:// in a URL, or a TLS configuration", e.Addr)
	}
	return fmt.Sprintf("the server at %s does not speak TLS, and the client does: use redis:// in a URL, no TLS configuration, or another port", e.Addr)
}
