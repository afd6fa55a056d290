package storetest

import (
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
)

// The cases for a revocation by token, for a lease whose fence the store did not record.

func revokeTokenCases() []Case {
	return []Case{
		{"revoke by token", "the lease with the token ends, and its client and the next waiter are notified", revokeByToken},
		{"revoke by chosen token", "a token that the application has chosen revokes its lease and notifies its client, or changes nothing if the store does not have the client", revokeByChosenToken},
		{"revoke by another token", "a token that does not hold the name revokes nothing", revokeByAnotherToken},
		{"revoke shared by token", "of several shared leases, only that with the token ends", revokeSharedByToken},
		{"revoke reserved by token", "a reservation with the token ends, and nobody is notified of that", revokeReservedByToken},
		{"revoke reserved reader by token", "so does the reservation of a shared lease", revokeReservedReader},
		{"revoke by fence and token", "a request with both a fence and a token, or with neither, returns ErrInvalid", revokeByFenceAndToken},
	}
}

func (p *testClient) revokeToken(name, token, reason string) bool {
	p.t.Helper()
	needs(p.t, p.s, "Revoker")
	revoked, err := p.s.Revoke(operationContext(p.t), driver.RevokeRequest{Name: name, Token: token, Reason: reason})
	if err != nil {
		p.t.Fatalf("revoke %q: %v", name, err)
	}
	return revoked
}

func (p *testClient) mustRevokeToken(r driver.AcquireRequest, reason string) {
	p.t.Helper()
	if !p.revokeToken(r.Name, r.Token, reason) {
		p.t.Fatalf("%q: the token of the lease did not revoke it", r.Name)
	}
}

// wantRevoked checks that the next event is a lease's revocation, and returns it.
func (p *testClient) wantRevoked(r driver.AcquireRequest, fence uint64, reason string) driver.Event {
	p.t.Helper()
	e := p.nextEvent()
	if e.Kind != driver.EventRevoked || e.Token != r.Token || e.Fence < fence || e.Reason != reason {
		p.t.Fatalf("event %+v, want EventRevoked for %s with fence %d at least and reason %q", e, r.Token, fence, reason)
	}
	return e
}

func revokeByToken(t *testing.T, s *driver.Full) {
	p, other := newClient(t, s), newClient(t, s)
	mine, next := p.newRequest("n"), other.newRequest("n")
	fence := p.mustAcquire(mine).Fence
	other.mustQueue(next, 1)
	other.mustAcquire(other.newRequest("elsewhere")) // its fence may be the last in the store
	p.mustRevokeToken(mine, "host is gone, see ticket 7")
	p.wantRevoked(mine, fence, "host is gone, see ticket 7")
	second := other.wantServed(next)
	wantErr(t, p.extend(mine, time.Minute), dibs.ErrLost)
	if p.release(mine, fence) || p.revokeToken("n", mine.Token, "") {
		t.Error("revoked twice")
	}
	p.wantHolder("n", next.Token)
	other.mustRelease(next, second)

	// The fence of the event is at least the ended lease's, and less than the fence of a later
	// lease with the token.
	fence = p.acquireSoon(mine)
	extended := driver.ExtendRequest{Name: "n", Token: mine.Token, Client: mine.Client, Fence: fence, TTL: time.Minute, Weight: 1, Limit: 1}
	if err := s.Extend(operationContext(t), []driver.ExtendRequest{extended})[0]; err != nil {
		t.Fatal(err)
	}
	p.mustRevokeToken(mine, "")
	e := p.wantRevoked(mine, fence, "")
	if again := p.acquireSoon(mine); again <= e.Fence {
		t.Errorf("a later lease has fence %d after the revocation of fence %d", again, e.Fence)
	}
}

// If other programs also write a store's values, a token may not identify its owner. Then the store
// can recognise the owner only if it recorded the client.
func revokeByChosenToken(t *testing.T, s *driver.Full) {
	p := newClient(t, s)
	c := chosen(p.newRequest("n"))
	fence := p.mustAcquire(c.AcquireRequest).Fence
	if !p.revokeToken("n", c.Token, "see ticket 7") {
		p.wantHolder("n", c.Token)
		if err := p.extend(c.AcquireRequest, time.Minute); err != nil {
			t.Errorf("not revoked, but the lease has ended: %v", err)
		}
		p.wantNoEvent(30 * time.Millisecond)
		return
	}
	p.wantRevoked(c.AcquireRequest, fence, "see ticket 7")
	wantErr(t, p.extend(c.AcquireRequest, time.Minute), dibs.ErrLost)
}

func revokeByAnotherToken(t *testing.T, s *driver.Full) {
	p := newClient(t, s)
	if p.revokeToken("free", "nobody", "") {
		t.Error("a free name was revoked")
	}
	mine, waits, elsewhere := p.newRequest("n"), p.newRequest("n"), p.newRequest("m")
	fence := p.mustAcquire(mine).Fence
	p.mustQueue(waits, 1)
	p.mustAcquire(elsewhere)
	for _, token := range []string{waits.Token, elsewhere.Token, mine.Token + "0", mine.Token[:len(mine.Token)-1], " ", "0"} {
		if p.revokeToken("n", token, "") {
			t.Fatalf("token %q revoked the lease of another one", token)
		}
	}
	for _, r := range []driver.AcquireRequest{mine, elsewhere} {
		if err := p.extend(r, time.Minute); err != nil {
			t.Errorf("%q: %v", r.Name, err)
		}
	}
	p.mustRelease(mine, fence)
	p.wantGranted(waits) // it is still in the queue, and nobody was notified of a revocation
}

func revokeSharedByToken(t *testing.T, s *driver.Full) {
	skipWithoutReaders(t, s)
	p, other := newClient(t, s), newClient(t, s)
	one, two, writer := p.newReader("n"), p.newReader("n"), other.newWriter("n")
	p.mustAcquire(one)
	fence := p.mustAcquire(two).Fence
	other.mustQueue(writer, 1)
	if p.revokeToken("n", writer.Token, "") {
		t.Fatal("the token of a waiter revoked a shared lease")
	}
	p.mustRevokeToken(two, "see ticket 7")
	p.wantRevoked(two, fence, "see ticket 7")
	wantErr(t, p.extend(two, time.Minute), dibs.ErrLost)
	if err := p.extend(one, time.Minute); err != nil {
		t.Errorf("the other shared lease: %v", err)
	}
	p.mustRevokeToken(one, "")
	p.wantRevoked(one, 1, "")
	other.wantServed(writer)
}

func revokeReservedByToken(t *testing.T, s *driver.Full) {
	p := newClient(t, s)
	p.revokeReserved(p.newRequest("n"))
}

func revokeReservedReader(t *testing.T, s *driver.Full) {
	skipWithoutReaders(t, s)
	p := newClient(t, s)
	p.revokeReserved(p.newReader("n"))
}

func (p *testClient) revokeReserved(r driver.AcquireRequest) {
	p.t.Helper()
	fence := p.mustAcquire(r).Fence
	freed, err := p.s.Release(operationContext(p.t), driver.ReleaseRequest{Name: r.Name, Token: r.Token, Fence: fence, Reserve: time.Hour})
	if err != nil || !freed {
		p.t.Fatalf("release %q: %v, %v", r.Name, freed, err)
	}
	if p.try(p.newRequest(r.Name)) {
		p.t.Fatalf("%q: granted while it is reserved", r.Name)
	}
	p.mustRevokeToken(r, "no longer needed")
	next := p.newRequest(r.Name)
	p.acquireSoon(next) // an event of the revocation would come first
	p.wantHolder(r.Name, next.Token)
	p.wantNoEvent(30 * time.Millisecond)
}

func revokeByFenceAndToken(t *testing.T, s *driver.Full) {
	needs(t, s, "Revoker")
	p := newSilentClient(t, s)
	request := p.newRequest("n")
	fence := p.mustAcquire(request).Fence
	for _, r := range []driver.RevokeRequest{{Name: "n", Fence: fence, Token: request.Token}, {Name: "n"}} {
		revoked, err := s.Revoke(operationContext(t), r)
		wantErr(t, err, dibs.ErrInvalid)
		if revoked {
			t.Errorf("%+v: revoked", r)
		}
	}
	p.wantHolder("n", request.Token)
}
