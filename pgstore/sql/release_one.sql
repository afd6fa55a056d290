-- Releases the exclusive lease of a name for which nobody waits, in one small
-- update. A function does the rest, also if a transaction guards the lease.
WITH durable AS (
  SELECT set_config('synchronous_commit', 'on', true) WHERE current_setting('synchronous_commit') = 'off'
), unguarded AS (
  SELECT name FROM dibs.names
  WHERE name = $1 AND token = $2 AND NOT reserved AND waiting = 0 AND expires > dibs.now() AND dibs.now() <= $3
  FOR UPDATE SKIP LOCKED
), released AS (
  UPDATE dibs.names n SET token = '', client = '' FROM unguarded u WHERE n.name = u.name RETURNING n.name
)
SELECT dibs.now(), true FROM released LEFT JOIN durable ON true
UNION ALL
SELECT r.* FROM dibs.release($1, $2, 0, false, $3) AS r WHERE NOT EXISTS (SELECT FROM released)
