package main

import (
	"context"

	"github.com/dibslock/dibs"
)

// dibsPeer is dibs as in its README.
type dibsPeer struct{ locks *dibs.Client }

func openDibs(s endpoint) (peer, error) {
	return dibsPeer{dibs.New(s.store(), dibs.TTL(s.ttl))}, nil
}

func (p dibsPeer) client() *dibs.Client { return p.locks }

func (p dibsPeer) Wire() []string { return []string{"evalsha", "eval"} }

func (p dibsPeer) Lock(ctx context.Context, name string) (func() error, error) {
	lease, err := p.locks.Mutex(name).Lock(ctx)
	if err != nil {
		return nil, err
	}
	return lease.Unlock, nil
}

// Keep implements renewingPeer.
func (p dibsPeer) Keep(ctx context.Context, name string) (heldLease, error) {
	lease, err := p.locks.Mutex(name).Lock(ctx)
	if err != nil {
		return nil, err
	}
	return dibsLease{lease}, nil
}

// dibsLease is as large as a pointer, so storing it in an interface adds no allocations to dibs'
// figures.
type dibsLease struct{ lease *dibs.Lease }

func (l dibsLease) Lost() bool { return l.lease.Err() != nil }
