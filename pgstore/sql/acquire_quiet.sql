-- Acquires a name that is free and that nobody waits for. It returns no row if it did nothing.
-- It makes the commit durable, as the functions do.
UPDATE dibs.names SET token = $2, client = $3, weight = $5, expires = dibs.now() + $4, fence = greatest(fence + 1, issued + 1, dibs.now())
WHERE name = $1 AND token = '' AND used = 0 AND waiting = 0 AND dibs.now() <= $6 AND dibs.durable()
RETURNING expires - $4, CASE WHEN dibs.now() <= $6 THEN fence ELSE dibs.late() END
