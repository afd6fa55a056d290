package spawn

import (
	"fmt"
	"math/rand/v2"
	"net"
	"sync/atomic"
)

// The ports of FreePort are below those that systems select themselves, for port 0 and for outgoing
// connections. So such a connection never takes the port of a server that starts or is down.
const (
	firstPort = 10000
	ports     = 32768 - firstPort
)

var (
	origin = rand.Uint32N(ports) // other processes also use the ports
	calls  atomic.Uint32
)

// FreePort returns a free port on the loopback address. Calls return different ports. Another
// process can take it before a server does, but this is unlikely.
func FreePort() (int, error) {
	var failure error
	for range ports {
		number := firstPort + int((origin+calls.Add(1))%ports)
		listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", number))
		if err == nil {
			return number, listener.Close()
		}
		failure = err
	}
	return 0, fmt.Errorf("no port is free: %w", failure)
}
