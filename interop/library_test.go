package interop

import "github.com/dibslock/dibs/redisstore"

// A library has a row of the matrix. The fields say what is different there.
type library struct {
	name   string
	driver string              // its name in the driver, if that is not the name
	store  []redisstore.Option // of dibs

	otherForm bool // of the lock key: it and dibs refuse each other's locks with an error
	redisson  bool // the store is in Redisson mode, which has no shared leases

	lateRelease, lateExtension trap

	breaks bool // under load, even without dibs: its calls fail
	sleeps bool // a waiter may sleep for seconds, also without dibs: it misses a message, or loses its place

	// A waiter waits for a message that dibs does not send, and retries once a second. So it gets
	// few turns beside waiters of dibs.
	unnotified bool
}

// A trap is what a library does to the lock of dibs if it releases or extends a lock that
// it has lost.
type trap string

const (
	refuses    trap = "" // nothing, as it should
	deletes    trap = "it releases the lock of dibs"
	changesTTL trap = "it changes the TTL of dibs"
	overwrites trap = "it takes the lock from dibs"
)

// careless is the row of a hand-written lock that does not compare the value. It shows what
// the columns find, and what dibs does then.
const careless = "`SET NX` and `DEL`"

func goLibraries() []library {
	return []library{
		{name: "redsync"},
		{name: "redislock"},
		{name: careless, lateRelease: deletes, lateExtension: changesTTL},
	}
}

func (l library) driverName() string {
	if l.driver != "" {
		return l.driver
	}
	return l.name
}
