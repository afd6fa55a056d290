-- Locks the row of a lease that nothing changes, in the transaction of the user. A reserved lease was
-- released or revoked, and only this or an earlier guard keeps it.
SELECT NOT EXISTS (SELECT 1 FROM dibs_names n WHERE n.name = g.name AND n.token = g.token AND n.reserved)
  AND NOT EXISTS (SELECT 1 FROM dibs_holders h WHERE h.name = g.name AND h.token = g.token AND h.reserved)
FROM dibs_guards g WHERE g.name = UNHEX(?) AND g.token = UNHEX(?) LOCK IN SHARE MODE
