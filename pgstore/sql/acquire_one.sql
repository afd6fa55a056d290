-- Acquires a free name exclusively, in one small update. A function does the rest.
-- The server calls it only if the update has found no row.
WITH durable AS (
  SELECT set_config('synchronous_commit', 'on', true) WHERE current_setting('synchronous_commit') = 'off'
), granted AS (
  UPDATE dibs.names SET token = $2, client = $3, weight = $5, expires = dibs.now() + $4, fence = greatest(fence + 1, dibs.now())
  WHERE name = $1 AND token = '' AND used = 0 AND waiting = 0 AND dibs.now() <= $8
  RETURNING fence
)
SELECT dibs.now(), true, fence, '', '', false, 0, 0, 0 FROM granted LEFT JOIN durable ON true
UNION ALL
SELECT a.* FROM dibs.acquire(ARRAY[$1::text], $2, $3, $4, $5, $6, $7, $8) AS a WHERE NOT EXISTS (SELECT FROM granted)
