-- Returns the next held names after a name.
SELECT n.name FROM dibs.names n
WHERE n.name > $1 AND (n.token <> '' AND n.expires > dibs.now()
  OR n.used > 0 AND EXISTS (SELECT FROM dibs.holders h WHERE h.name = n.name AND h.expires > dibs.now()))
ORDER BY n.name LIMIT $2
