-- Returns the states of names. Of each there is a row for the name itself (n), and up to 100
-- holders (h) and waiters (w) with the numbers of all. Each lookup is by name, with an index. A
-- lease that has expired still holds its name while a transaction guards it.
WITH t AS (SELECT dibs.now() AS at),
known AS MATERIALIZED (
  SELECT w.i::integer, n.* FROM unnest($1::text[]) WITH ORDINALITY AS w(wanted, i) LEFT JOIN dibs.names n ON n.name = w.wanted
)
SELECT i, 'n' AS kind, 0 AS place, '' AS token, 0 AS weight, 0 AS most, coalesce(fence, (SELECT fence FROM dibs.removed)) AS fence, 0 AS micros, false AS reserved, 0 AS total
FROM known
UNION ALL
SELECT i, 'h', 0, token, 0, 0, fence, greatest(expires - at, 0), reserved, 1 FROM known, t
WHERE token <> '' AND (expires > at OR dibs.guard_key(name, token) IN (SELECT dibs.guards()))
UNION ALL
SELECT k.i, 'h', h.place, h.token, h.weight, 0, h.fence, h.remaining, h.reserved, h.total FROM known k, t, LATERAL (
  SELECT row_number() OVER (ORDER BY expires)::integer AS place, token, weight, fence, greatest(expires - at, 0) AS remaining, reserved, count(*) OVER ()::integer AS total
  FROM dibs.holders WHERE name = k.name AND (expires > at OR dibs.guard_key(name, token) IN (SELECT dibs.guards())) ORDER BY expires LIMIT 100
) AS h WHERE k.used > 0
UNION ALL
SELECT k.i, 'w', w.place, w.token, w.weight, w.most, 0, w.waited, false, w.total FROM known k, t, LATERAL (
  SELECT row_number() OVER (ORDER BY ticket, token)::integer AS place, token, weight, most, at - joined AS waited, count(*) OVER ()::integer AS total
  FROM dibs.waiters WHERE name = k.name AND heartbeat + dibs.waiter_ttl() > at ORDER BY ticket, token LIMIT 100
) AS w WHERE k.waiting > 0
ORDER BY i, place
