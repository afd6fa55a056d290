package sqlstore

import (
	"fmt"
	"sync"

	"github.com/dibslock/dibs/driver"
)

// Given are the leases of this process that may end, or have ended, with a transaction. Each has the
// proof by which the store asks the server whether that transaction was committed. The zero value is
// empty. It is safe for concurrent use.
type Given[Proof any] struct {
	mu     sync.Mutex
	proofs map[[2]string]Proof // of the last transaction, by name and token
}

// Add records that a transaction releases a lease.
func (g *Given[Proof]) Add(name, token string, proof Proof) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.proofs == nil {
		g.proofs = make(map[[2]string]Proof)
	}
	g.proofs[[2]string{name, token}] = proof
}

// Find returns the proof, if a transaction releases the lease.
func (g *Given[Proof]) Find(name, token string) (proof Proof, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	proof, ok = g.proofs[[2]string{name, token}]
	return proof, ok
}

// Remove forgets a lease.
func (g *Given[Proof]) Remove(name, token string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.proofs, [2]string{name, token})
}

// CheckRelease returns driver.ErrInvalid if a transaction must not release the lease.
func (g Guarded) CheckRelease() error {
	if !g.Reentered {
		return nil
	}
	return fmt.Errorf("%w: release %q in a transaction: a nested call uses the lease, too: release it where it was acquired", driver.ErrInvalid, g.Name)
}
