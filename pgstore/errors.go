package pgstore

import (
	"errors"
	"strings"

	"github.com/dibslock/dibs/driver"
	"github.com/jackc/pgx/v5/pgconn"
)

// Error codes of the functions in the schema.
const (
	codeIsolation = "DIBS1" // the transaction is not read committed
	codeGuarded   = "DIBS2" // a transaction guards the lease
)

func isCode(err error, code string) bool {
	var server *pgconn.PgError
	return errors.As(err, &server) && server.Code == code
}

// repeatable reports whether the server has rolled a request back for a reason that does not
// repeat: a deadlock or a conflict with another transaction.
func repeatable(err error) bool { return isCode(err, "40001") || isCode(err, "40P01") }

// unavailable returns the error of an operation. A server that replied with an error has done
// nothing; for some errors another attempt may succeed.
func unavailable(op, name string, err error) error {
	var server *pgconn.PgError
	return &driver.UnavailableError{
		Op: op, Name: name, Cause: err,
		Refused: errors.As(err, &server) && !transient(server.Code),
	}
}

// transient reports whether an error may pass: a conflict, a server that starts or stops or has
// no resources, a lock that was not free in time, or a standby.
func transient(code string) bool {
	const readOnly = "25006"
	if code == readOnly || code == codeGuarded {
		return true
	}
	for _, class := range []string{"08", "40", "53", "55", "57", "58", "XX"} {
		if strings.HasPrefix(code, class) {
			return true
		}
	}
	return false
}
