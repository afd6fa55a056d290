package mysqlstore

import (
	"errors"
	"fmt"
	"strings"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/sqlstore"
	"github.com/go-sql-driver/mysql"
)

// numberOf returns a server error's number, or 0.
func numberOf(err error) uint16 {
	var server *mysql.MySQLError
	if errors.As(err, &server) {
		return server.Number
	}
	return 0
}

// repeatable reports whether the server rolled a request back for a passing reason: a deadlock, or
// a row locked for too long.
func repeatable(err error) bool {
	const deadlock, lockWait = 1213, 1205
	n := numberOf(err)
	return n == deadlock || n == lockWait || n == changed
}

// unavailable returns an operation's error. A server replying with an error did nothing; after a
// refusal, another attempt would also fail.
func unavailable(op, name string, err error) error {
	return sqlstore.Unavailable(op, name, err, explained(err), isRefusal(err))
}

// explained returns an error with advice.
func explained(err error) error {
	switch n := numberOf(err); {
	case n == noTable || n == noProcedure:
		return fmt.Errorf("%w: %w", driver.ErrNoTables, err)
	case n == needsTLS:
		return fmt.Errorf("the server wants TLS: use tls=true, or ca=FILE in a URL: %w", err)
	case isClosed(err):
		return fmt.Errorf("%w: %w", driver.ErrDisconnected, err)
	case errors.Is(err, mysql.ErrNoTLS):
		return fmt.Errorf("the server does not use TLS: leave out tls and ca, or turn TLS on in the server: %w", err)
	}
	if mistake := sqlstore.ExplainTLS(err); mistake != nil {
		return mistake
	}
	return err
}

const (
	changed     = 1020 // a row, since the transaction's snapshot
	noTable     = 1146
	noProcedure = 1305
	readOnly    = 1792 // the transaction
	needsTLS    = 3159
)

// isClosed reports whether the *sql.DB is closed. The error is not exported.
func isClosed(err error) bool {
	return err != nil && strings.HasSuffix(err.Error(), "database is closed")
}

// isRefusal reports whether an error repeats until somebody changes something: the connection,
// rights, tables, procedures, or the binary log's format.
func isRefusal(err error) bool {
	switch numberOf(err) {
	case 1044, 1045, 1046, 1049, 1129, 1130, 1698, // access to the server or the database, or no database
		1142, 1143, 1227, 1370, // rights
		1064, noTable, noProcedure, 1318, // missing or different tables and procedures
		needsTLS,
		1665: // the binary log's format is STATEMENT
		return true
	}
	var setting *settingError
	return errors.As(err, &setting) || isClosed(err) || errors.Is(err, mysql.ErrNoTLS) || sqlstore.ExplainTLS(err) != nil
}
