package zktest

import "fmt"

// A network forwards the connections between members, and can cut those between two of them.
//
// The addresses of a member are the same for all members, and a member also sends its own address to
// others, who connect to it. So a proxy in front of a member cannot identify the sender. But Java can
// open connections through a SOCKS proxy. Each member has its own.
type network struct {
	senders []*sender
}

// open starts the proxies.
func (n *network) open(peers []peer) error {
	for range peers {
		s, err := newSender(peers)
		if err != nil {
			return err
		}
		n.senders = append(n.senders, s)
	}
	return nil
}

// flags returns the flags that make a member send through its proxy. Java would exclude loopback
// addresses.
func (n *network) flags(i int) []string {
	return []string{
		"-DsocksProxyHost=127.0.0.1",
		fmt.Sprintf("-DsocksProxyPort=%d", n.senders[i].port()),
		"-DsocksNonProxyHosts=",
	}
}

func (n *network) heal() {
	for _, s := range n.senders {
		for _, l := range s.links {
			l.heal()
		}
	}
}

// close ends the proxies. The members have ended.
func (n *network) close() {
	for _, s := range n.senders {
		s.listener.Close()
	}
	n.heal()
}
