package pgstore

import (
	"context"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/jackc/pgx/v5"
)

// warm prepares the usual statements on a new connection, and learns the server's time. So the
// first request is a single round trip, like all others. On a slow network it could otherwise miss
// its deadline. The statements change nothing, because their time limit is over. A failure does not
// matter: the requests report it.
func (s *Store) warm(ctx context.Context, conn *pgx.Conn) {
	const past = -1
	const name = ""
	var batch pgx.Batch
	if !s.poll {
		batch.Queue(notCompiled) // otherwise these statements alone may take seconds
		batch.Queue(isUnsuitable)
	}
	batch.Queue(s.text.acquireOne, name, "", "", 0, 1, 1, false, 0, past)
	batch.Queue(s.text.acquireQuiet, name, "", "", 0, 1, past)
	batch.Queue(s.text.releaseQuiet, name, "", past)
	batch.Queue(s.text.releaseOne, name, "", past)
	batch.Queue(s.text.extend, []string{}, []string{}, []string{}, []int64{})
	sent := time.Now()
	results := conn.SendBatch(ctx, &batch)
	changes := true // if the session does not let the statement end
	if !s.poll {
		_, _ = results.Exec()
		_ = results.QueryRow().Scan(&changes)
	}
	s.learn(sent, results)
	err := results.Close()
	if !s.poll && (changes || err != nil) { // an error undoes the batch's settings
		_, _ = conn.Exec(ctx, makeSuitable)
	}
}

// learn learns the server's time from the reply to an empty request.
func (s *Store) learn(sent time.Time, results pgx.BatchResults) {
	var none driver.AcquireReply
	at, _, err := s.db.ScanReply(&none)(results.QueryRow())
	switch {
	case err == nil:
		s.db.Limit.Clock.Learn(sent, time.Now(), at)
	case isCode(err, codeIsolation):
		s.setsIsolation.Store(true)
	}
}
