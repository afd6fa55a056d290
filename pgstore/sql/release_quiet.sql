-- Releases a lease if nobody waits for its name. It returns no row if it did nothing. It
-- undoes the release if a transaction guards the lease: the update carries the lock of the
-- guard over to the new version of the row, where xmax shows it.
UPDATE dibs.names SET token = '', client = ''
WHERE name = $1 AND token = $2 AND NOT reserved AND waiting = 0 AND expires > dibs.now() AND dibs.now() <= $3 AND dibs.durable()
RETURNING dibs.now(), xmax = 0 OR dibs.guarded()
