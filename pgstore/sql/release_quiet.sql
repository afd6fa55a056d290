-- Releases a lease if nobody waits for its name. It returns no row if it did nothing. It undoes
-- the release if a transaction guards the lease: the last column is computed after the row was
-- locked, because only one transaction may try to end a lease.
UPDATE dibs.names SET token = '', asked = false
WHERE name = $1 AND token = $2 AND NOT reserved AND waiting = 0 AND dibs.now() < least(expires, $3) AND dibs.durable()
RETURNING dibs.now(), dibs.may_end($1, $2) OR dibs.guarded()
