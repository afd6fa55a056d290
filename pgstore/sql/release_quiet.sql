-- Releases a lease if nobody waits for its name. It returns no row if it did nothing, also if a
-- transaction guards the lease.
UPDATE dibs.names SET token = '', asked = false
WHERE name = $1 AND token = $2 AND NOT reserved AND waiting = 0 AND dibs.now() < least(expires, $3) AND dibs.durable()
  AND pg_try_advisory_xact_lock(dibs.guard_key($1, $2))
RETURNING dibs.now(), true
