-- Returns up to 100 holders and waiters of a name, each with the numbers of all. There
-- is a row for the name itself, the last one.
WITH holders AS (
  SELECT token, 0 AS weight, fence, expires - now_us() AS remaining, reserved FROM dibs_names WHERE name = UNHEX(?) AND token <> ''
  UNION ALL
  SELECT token, weight, fence, expires - now_us(), reserved FROM dibs_holders WHERE name = UNHEX(?)
), waiters AS (
  SELECT token, ticket, now_us() - joined AS waited FROM dibs_waiters WHERE name = UNHEX(?) AND heartbeat + waiter_ttl() > now_us()
)
(SELECT 'h', token, weight, fence, remaining, reserved FROM holders WHERE remaining > 0 ORDER BY remaining LIMIT 100)
UNION ALL
(SELECT 'w', token, 0, 0, waited, FALSE FROM waiters ORDER BY ticket, token LIMIT 100)
UNION ALL
SELECT 'n', '', (SELECT COUNT(*) FROM holders WHERE remaining > 0),
  COALESCE((SELECT fence FROM dibs_names WHERE name = UNHEX(?)), (SELECT fence FROM dibs_removed)), (SELECT COUNT(*) FROM waiters), FALSE
