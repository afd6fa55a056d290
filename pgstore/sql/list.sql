-- Returns the next held names after a name. A lease that has expired still holds its name while a
-- transaction guards it.
SELECT n.name FROM dibs.names n
WHERE n.name > $1 AND (
  n.token <> '' AND (n.expires > dibs.now() OR dibs.guard_key(n.name, n.token) IN (SELECT dibs.guards()))
  OR n.used > 0 AND EXISTS (
    SELECT FROM dibs.holders h
    WHERE h.name = n.name AND (h.expires > dibs.now() OR dibs.guard_key(h.name, h.token) IN (SELECT dibs.guards()))
  )
)
ORDER BY n.name LIMIT $2
