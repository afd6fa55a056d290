package interop

import "github.com/dibslock/dibs/redisstore"

// A library is a row in the matrix. The fields describe its differences.
type library struct {
	name   string
	driver string              // its name in the driver, if it is not the name
	store  []redisstore.Option // for dibs

	otherForm bool // for the lock key: it and dibs refuse each other's locks with an error
	redisson  bool // the store is in Redisson mode, without shared leases

	lateRelease, lateExtension trap

	breaks bool // under load, even without dibs: its calls fail
	sleeps bool // a waiter may sleep for seconds, also without dibs: it misses a message, or loses its place

	// A waiter waits for a message that dibs does not send, and retries once a second. So it gets
	// few turns beside dibs' waiters.
	unnotified bool
}

// A trap is a library's effect on dibs' lock when it releases or extends a lost lock.
type trap string

const (
	refuses    trap = "" // nothing, as it should
	deletes    trap = "it releases the lock of dibs"
	changesTTL trap = "it changes the TTL of dibs"
	overwrites trap = "it takes the lock from dibs"
)

// careless is the row for a hand-written lock without a comparison of the value. It shows the
// columns' findings, and dibs' reaction.
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
