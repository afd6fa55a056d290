package renew

import "time"

// A pace limits renewals that are only needed in case the store lost the leases. All leases can be
// renewed once in a few seconds, and a small number at any time, however often the connection
// breaks.
type pace struct {
	allowed float64
	at      time.Duration
}

const (
	allWithin = 3.0 // seconds after which all leases may be renewed again
	always    = 128 // leases that can be renewed each second
)

// allow returns how many of n leases can be renewed now by a client with this many leases.
func (p *pace) allow(now time.Duration, n, leases int) int {
	most := float64(max(leases, always))
	if p.at == 0 {
		p.allowed = most
	}
	p.allowed = min(p.allowed+(now-p.at).Seconds()*max(float64(leases)/allWithin, always), most)
	p.at = now
	n = min(n, int(p.allowed))
	p.allowed -= float64(n)
	return n
}

// next returns when there is room for a single lease, or for a batch of this many if it has to
// wait.
func (p *pace) next(now time.Duration, batch, leases int) time.Duration {
	missing := min(float64(batch), float64(leases)/10+1) - p.allowed
	if missing <= 0 {
		return now
	}
	return now + time.Duration(missing/max(float64(leases)/allWithin, always)*float64(time.Second)) + time.Millisecond
}
