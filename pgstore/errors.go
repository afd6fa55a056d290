package pgstore

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/sqlstore"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/puddle/v2"
)

// Error codes from the functions in the schema.
const (
	codeIsolation = "DIBS1" // the transaction is not read committed
	codeGuarded   = "DIBS2" // a transaction guards the lease
	codeReadOnly  = "DIBS3" // the transaction is read-only
	codeSavepoint = "DIBS4" // the transaction has an open savepoint
	codeReplica   = "DIBS5" // session_replication_role is replica

	codeReadOnlySession = "25006"

	codeConflict    = "40001" // a conflict with another transaction
	codeLockTimeout = "55P03" // a lock was not free in time
)

func isCode(err error, code string) bool {
	if err == nil {
		return false // most often: As would allocate
	}
	var server *pgconn.PgError
	return errors.As(err, &server) && server.Code == code
}

// repeatable reports whether the server rolled a request back for a passing reason: a deadlock or a
// conflict with another transaction.
func repeatable(err error) bool { return isCode(err, codeConflict) || isCode(err, "40P01") }

// unavailable returns an operation's error. A server replying with an error did nothing; after some
// errors another attempt can succeed.
func unavailable(op, name string, err error) error {
	return sqlstore.Unavailable(op, name, err, explained(err), isRefusal(err))
}

// isRefusal reports whether an error repeats until somebody changes something.
func isRefusal(err error) bool {
	if errors.Is(err, puddle.ErrClosedPool) {
		return true
	}
	var server *pgconn.PgError
	if errors.As(err, &server) {
		return !transient(server.Code)
	}
	var connect *pgconn.ConnectError
	if !errors.As(err, &connect) {
		return false
	}
	for _, attempt := range attempts(errors.Unwrap(connect)) { // another host may be away for now
		if explainTLS(attempt) == nil {
			return false
		}
	}
	return true
}

// explainTLS returns a permanent TLS error with advice, or nil.
func explainTLS(err error) error {
	if strings.HasSuffix(err.Error(), "server refused TLS connection") { // the error has no type
		return errors.New("the server refused TLS: use sslmode=disable, or turn TLS on in the server")
	}
	return sqlstore.ExplainTLS(err)
}

// transient reports whether an error can pass: a conflict, a starting, stopping or overloaded
// server, a lock not free in time, or a standby.
func transient(code string) bool {
	if code == codeReadOnlySession || code == codeGuarded {
		return true
	}
	for _, class := range []string{"08", "40", "53", "55", "57", "58", "XX"} {
		if strings.HasPrefix(code, class) {
			return true
		}
	}
	return false
}

// explained returns an error with advice, or a shorter error.
func explained(err error) error {
	const noTable, noSchema, noFunction = "42P01", "3F000", "42883"
	if isCode(err, noTable) || isCode(err, noSchema) || isCode(err, noFunction) {
		return fmt.Errorf("%w: %w", driver.ErrNoTables, err)
	}
	if errors.Is(err, puddle.ErrClosedPool) {
		return fmt.Errorf("%w: %w", driver.ErrDisconnected, err)
	}
	if isCode(err, codeReadOnlySession) {
		return fmt.Errorf("default_transaction_read_only is on, or the server is a standby: %w", err)
	}
	const preparedTwice, notPrepared = "42P05", "26000"
	if isCode(err, preparedTwice) || isCode(err, notPrepared) {
		return fmt.Errorf("a pooler in transaction mode needs the option Poll and pgx.QueryExecModeCacheDescribe (in a URL: dibs_poll=true): %w", err)
	}
	var connect *pgconn.ConnectError
	if errors.As(err, &connect) {
		return connectError{connect}
	}
	return err
}

// A connectError is a failure to open a connection. Its text is a single line, without the user.
type connectError struct{ *pgconn.ConnectError }

func (e connectError) Unwrap() error { return e.ConnectError }

func (e connectError) Error() string {
	all := attempts(errors.Unwrap(e.ConnectError))
	if slices.ContainsFunc(all, fromServer) { // sslmode=prefer makes another attempt, without TLS
		all = slices.DeleteFunc(slices.Clone(all), func(err error) bool { return !fromServer(err) })
	}
	var texts []string
	for _, attempt := range all {
		if text := innermost(attempt).Error(); !slices.Contains(texts, text) {
			texts = append(texts, text)
		}
	}
	return strings.ReplaceAll(strings.Join(texts, "; "), "\n", "; ")
}

func fromServer(err error) bool {
	var server *pgconn.PgError
	return errors.As(err, &server)
}

// attempts returns the errors from the attempted addresses.
func attempts(err error) []error {
	var several interface{ Unwrap() []error }
	if errors.As(err, &several) {
		return several.Unwrap()
	}
	return []error{err}
}

// innermost returns the network's or the server's message, without the driver's text.
func innermost(err error) error {
	var network *net.OpError
	var lookup *net.DNSError
	var server *pgconn.PgError
	if mistake := explainTLS(err); mistake != nil {
		return mistake
	}
	switch {
	case errors.As(err, &server) && strings.HasSuffix(server.Message, ", no encryption"):
		return fmt.Errorf("%w; the server may want TLS: sslmode=verify-full", server)
	case errors.As(err, &server):
		return server
	case errors.As(err, &network):
		return network
	case errors.As(err, &lookup):
		return lookup
	}
	return err
}
