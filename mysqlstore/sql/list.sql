-- Returns the next held names after a name.
SELECT n.name FROM dibs_names n
WHERE n.name > UNHEX(?) AND (n.token <> '' AND n.expires > now_us()
  OR n.used > 0 AND EXISTS (SELECT 1 FROM dibs_holders h WHERE h.name = n.name AND h.expires > now_us()))
ORDER BY n.name LIMIT ?
