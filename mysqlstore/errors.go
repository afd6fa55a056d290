package mysqlstore

import (
	"errors"
	"fmt"
	"net"

	"github.com/dibslock/dibs/driver"
	"github.com/go-sql-driver/mysql"
)

// numberOf returns the number of an error of the server, or 0.
func numberOf(err error) uint16 {
	var server *mysql.MySQLError
	if errors.As(err, &server) {
		return server.Number
	}
	return 0
}

// repeatable reports whether the server has rolled a request back for a reason that does not
// repeat: a deadlock, or a row that was locked for too long.
func repeatable(err error) bool {
	const deadlock, lockWait, changed = 1213, 1205, 1020
	n := numberOf(err)
	return n == deadlock || n == lockWait || n == changed
}

// unavailable returns the error of an operation. A server that replied with an error has done
// nothing; for the errors that are refusals another attempt fails, too.
func unavailable(op, name string, err error) error {
	return &driver.UnavailableError{Op: op, Name: name, Cause: explained(err), Refused: isRefusal(err)}
}

// explained returns an error that says what to do, or that no request was sent.
func explained(err error) error {
	switch n := numberOf(err); {
	case n == noTable || n == noProcedure:
		return fmt.Errorf("%w: %w", driver.ErrNoTables, err)
	case isConnectError(err):
		return unsentError{err}
	}
	return err
}

// isConnectError reports whether no connection could be opened, and another attempt may succeed.
func isConnectError(err error) bool {
	const tooMany, tooManyOfUser = 1040, 1203
	n := numberOf(err)
	var dial *net.OpError
	return n == tooMany || n == tooManyOfUser || errors.As(err, &dial) && dial.Op == "dial"
}

// An unsentError is a connection that could not be opened.
type unsentError struct{ error }

// Unsent reports that no request was sent.
func (unsentError) Unsent() bool { return true }

func (e unsentError) Unwrap() error { return e.error }

const (
	noTable     = 1146
	noProcedure = 1305
)

// isRefusal reports whether an error repeats until somebody changes something: the connection,
// rights, tables, procedures, or the format of the binary log.
func isRefusal(err error) bool {
	switch numberOf(err) {
	case 1044, 1045, 1046, 1049, 1129, 1130, 1698, // access to the server or the database, or no database
		1142, 1143, 1227, 1370, // rights
		1064, noTable, noProcedure, 1318, // tables and procedures that do not exist, or are others
		1665: // the binary log has the format STATEMENT
		return true
	}
	return errors.Is(err, mysql.ErrNoTLS)
}
