-- Extends leases. It skips rows that are locked at this moment: neither a guard nor a
-- transaction that releases a lease may delay the renewals of others. The result of each is
-- its number, whether it was extended, and whether there is such a lease: then its row was locked.
WITH durable AS (
  SELECT set_config('synchronous_commit', 'on', true) WHERE current_setting('synchronous_commit') = 'off'
), wanted AS (
  SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[]) WITH ORDINALITY AS w(name, token, client, ttl, i)
), exclusive AS (
  SELECT w.* FROM wanted w JOIN dibs.names n ON n.name = w.name AND n.token = w.token AND NOT n.reserved AND n.expires > dibs.now()
  FOR NO KEY UPDATE OF n SKIP LOCKED
), extended AS (
  UPDATE dibs.names n SET expires = greatest(n.expires, dibs.now() + e.ttl), client = coalesce(nullif(e.client, ''), n.client)
  FROM exclusive e WHERE n.name = e.name RETURNING e.i
), shared AS (
  SELECT w.* FROM wanted w JOIN dibs.holders h ON h.name = w.name AND h.token = w.token AND NOT h.reserved AND h.expires > dibs.now()
  FOR NO KEY UPDATE OF h SKIP LOCKED
), extended_too AS (
  UPDATE dibs.holders h SET expires = greatest(h.expires, dibs.now() + s.ttl), client = coalesce(nullif(s.client, ''), h.client)
  FROM shared s WHERE h.name = s.name AND h.token = s.token AND NOT h.reserved RETURNING s.i
)
SELECT w.i, EXISTS (SELECT FROM extended e WHERE e.i = w.i) OR EXISTS (SELECT FROM extended_too e WHERE e.i = w.i),
  EXISTS (SELECT FROM dibs.names n WHERE n.name = w.name AND n.token = w.token AND NOT n.reserved AND n.expires > dibs.now())
  OR EXISTS (SELECT FROM dibs.holders h WHERE h.name = w.name AND h.token = w.token AND NOT h.reserved AND h.expires > dibs.now())
FROM wanted w LEFT JOIN durable ON true
