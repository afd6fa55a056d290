-- Releases a lease if nobody waits for its name. It returns no row if it did nothing. It
-- undoes the release if a transaction guards the lease: the update carries the lock of the
-- guard over to the new version of the row, where xmax shows it.
UPDATE dibs.names SET token = '', asked = false
WHERE name = $1 AND token = $2 AND NOT reserved AND waiting = 0 AND dibs.now() < least(expires, $3) AND dibs.durable()
RETURNING dibs.now(), xmax = 0 OR dibs.guarded()
