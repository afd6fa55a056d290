-- Returns the states of names. Of each there is a row for the name itself (n), and up to 100
-- holders (h) and waiters (w) with the numbers of all. Each lookup is by name, with an index.
WITH wanted AS (SELECT i, UNHEX(name) AS name FROM list_of(?) AS l)
SELECT w.i, 'n' AS kind, 0 AS place, '' AS token, 0 AS weight, 0 AS most, COALESCE(n.fence, (SELECT fence FROM dibs_removed)) AS fence, 0 AS micros, FALSE AS reserved, 0 AS total
FROM wanted w LEFT JOIN dibs_names n ON n.name = w.name
UNION ALL
SELECT w.i, 'h', 0, n.token, 0, 0, n.fence, COALESCE(r.until, n.expires) - now_us(), n.reserved OR r.until IS NOT NULL, 1
FROM wanted w STRAIGHT_JOIN dibs_names n ON n.name = w.name
  LEFT JOIN dibs_releases r ON r.name = n.name AND r.token = n.token AND NOT n.reserved
WHERE n.token <> '' AND n.expires > now_us() AND COALESCE(r.until, n.expires) > now_us()
UNION ALL
SELECT i, 'h', place, token, weight, 0, fence, remaining, reserved, total FROM (
  SELECT w.i, h.token, h.weight, h.fence, COALESCE(r.until, h.expires) - now_us() AS remaining, h.reserved OR r.until IS NOT NULL AS reserved,
    ROW_NUMBER() OVER (PARTITION BY w.i ORDER BY h.expires) AS place, COUNT(*) OVER (PARTITION BY w.i) AS total
  FROM wanted w STRAIGHT_JOIN dibs_holders h ON h.name = w.name
    LEFT JOIN dibs_releases r ON r.name = h.name AND r.token = h.token AND NOT h.reserved
  WHERE h.expires > now_us() AND COALESCE(r.until, h.expires) > now_us()
) AS shared WHERE place <= 100
UNION ALL
SELECT i, 'w', place, token, weight, most, 0, waited, FALSE, total FROM (
  SELECT w.i, q.token, q.weight, q.most, now_us() - q.joined AS waited,
    ROW_NUMBER() OVER (PARTITION BY w.i ORDER BY q.ticket, q.token) AS place, COUNT(*) OVER (PARTITION BY w.i) AS total
  FROM wanted w STRAIGHT_JOIN dibs_waiters q ON q.name = w.name WHERE q.heartbeat + waiter_ttl() > now_us()
) AS queue WHERE place <= 100
ORDER BY i, place
