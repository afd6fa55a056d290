-- Returns up to 100 holders and waiters of a name, each with the numbers of all. There
-- is a row for the name itself, the last one.
WITH t AS (SELECT dibs.now() AS at),
holders AS (
  SELECT token, CASE WHEN h.most THEN 0 ELSE weight END AS weight, fence, expires - at AS remaining, reserved FROM (
    SELECT token, weight, true AS most, fence, expires, reserved FROM dibs.names WHERE name = $1 AND token <> ''
    UNION ALL
    SELECT token, weight, false, fence, expires, reserved FROM dibs.holders WHERE name = $1
  ) AS h, t WHERE expires > at
), waiters AS (
  SELECT token, ticket, at - joined AS waited FROM dibs.waiters, t WHERE name = $1 AND heartbeat + dibs.waiter_ttl() > at
)
(SELECT 'h', token, weight, fence, remaining, reserved FROM holders ORDER BY remaining LIMIT 100)
UNION ALL
(SELECT 'w', token, 0, 0, waited, false FROM waiters ORDER BY ticket, token LIMIT 100)
UNION ALL
SELECT 'n', '', (SELECT count(*) FROM holders)::integer, coalesce((SELECT fence FROM dibs.names WHERE name = $1), (SELECT fence FROM dibs.removed)),
  (SELECT count(*) FROM waiters), false
