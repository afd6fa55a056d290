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
	return &driver.UnavailableError{Op: op, Name: name, Cause: explained(err), Refused: refusal(numberOf(err))}
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

// isConnectError reports whether no connection could be opened. The server has these errors for
// no other request of a store.
func isConnectError(err error) bool {
	const tooMany, tooManyOfUser, hostBlocked, hostDenied = 1040, 1203, 1129, 1130
	switch numberOf(err) {
	case tooMany, tooManyOfUser, hostBlocked, hostDenied, databaseDenied, userDenied, noDatabase, noPassword:
		return true
	}
	var dial *net.OpError
	return errors.As(err, &dial) && dial.Op == "dial" || errors.Is(err, mysql.ErrNoTLS)
}

// An unsentError is a connection that could not be opened.
type unsentError struct{ error }

// Unsent reports that no request was sent.
func (unsentError) Unsent() bool { return true }

func (e unsentError) Unwrap() error { return e.error }

// Errors of the server.
const (
	databaseDenied = 1044
	userDenied     = 1045
	noDatabase     = 1049
	noTable        = 1146
	noProcedure    = 1305
	noPassword     = 1698 // the server wants another authentication
)

// refusal reports whether an error repeats until somebody changes something: rights, tables,
// procedures, or the format of the binary log.
func refusal(number uint16) bool {
	switch number {
	case databaseDenied, userDenied, noPassword, noDatabase, 1046, // 1046: the URL names no database
		1142, 1143, 1227, 1370, // rights
		1064, noTable, noProcedure, 1318, // tables and procedures that do not exist, or are others
		1665: // the binary log has the format STATEMENT
		return true
	}
	return false
}
