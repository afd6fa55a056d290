-- Each verb that finds contention is one call of a function here, so that a name is
-- locked only while the server works, never during a round trip. They need read committed:
-- each statement of a function has to see what others have committed before it.
--
-- A row of dibs.names is locked FOR NO KEY UPDATE while its name changes. A guard has a shared
-- advisory lock of its lease. A lease ends only with the exclusive one, so nobody waits for a
-- guard, but no lease ends while there is one. Row locks would not do: PostgreSQL loses a lock
-- FOR KEY SHARE that is taken while an UPDATE moves the row to another page.

-- Functions that clients call have a search path of their own, so that nobody who may create
-- functions and operators in another schema has them executed. Those without one have exact types.
-- Those that run in a transaction of the user are not compiled each time, whatever its settings are.

-- now is exact to a microsecond. extract would return a numeric, which is slow.
CREATE FUNCTION dibs.now() RETURNS bigint LANGUAGE sql VOLATILE AS $$
  SELECT (date_part('epoch', clock_timestamp()) * 1000000::double precision)::bigint
$$;

CREATE FUNCTION dibs.check_isolation() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    RAISE EXCEPTION 'dibs needs the isolation level read committed' USING ERRCODE = 'DIBS1';
  END IF;
END $$;

-- durable makes the commit of the transaction wait for the disk if it would not. It returns true.
CREATE FUNCTION dibs.durable() RETURNS boolean LANGUAGE sql VOLATILE AS $$
  SELECT current_setting('synchronous_commit') <> 'off' OR set_config('synchronous_commit', 'on', true) = 'on'
$$;

-- guard_key is the advisory lock of a lease. Two leases with one key only delay each other.
CREATE FUNCTION dibs.guard_key(n text, whose text) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
  SELECT hashtextextended(n || E'\n' || whose, 0::bigint)
$$;

-- may_end_now is may_end after a first failure. A transaction that ends makes its changes visible
-- before it releases its advisory locks. The shared lock waits for that, and not for a guard.
CREATE FUNCTION dibs.may_end_now(n text, whose text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_advisory_xact_lock_shared(dibs.guard_key(n, whose));
  RETURN pg_try_advisory_xact_lock(dibs.guard_key(n, whose));
END $$;

-- may_end prevents guards of a lease until the transaction ends, unless one prevents the end of
-- the lease. The name must be locked, so that only one transaction tries to end the lease.
CREATE FUNCTION dibs.may_end(n text, whose text) RETURNS boolean LANGUAGE sql VOLATILE AS $$
  SELECT pg_try_advisory_xact_lock(dibs.guard_key(n, whose)) OR dibs.may_end_now(n, whose)
$$;

-- check_guard refuses a transaction in which a guard would not last or would do nothing. A savepoint
-- that is rolled back ends the locks that were taken in it, and nothing is left that could notice.
-- A new row shows whether there is one: its xmin is then not the number of the transaction.
CREATE FUNCTION dibs.check_guard() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  level bigint;
  it tid;
BEGIN
  IF current_setting('transaction_read_only')::boolean AND NOT pg_is_in_recovery() THEN
    RAISE EXCEPTION 'the transaction is read-only' USING ERRCODE = 'DIBS3';
  END IF;
  INSERT INTO dibs.levels (new) VALUES (true) RETURNING xmin::text::bigint, ctid INTO level, it;
  DELETE FROM dibs.levels WHERE ctid = it;
  IF level <> txid_current() & 4294967295 THEN
    RAISE EXCEPTION 'the transaction has an open savepoint' USING ERRCODE = 'DIBS4';
  END IF;
END $$;

-- check_snapshot fails with 40001 if the lease of a token may have changed since the snapshot of
-- the transaction: then the snapshot cannot show whether it is held, and may be older than the
-- lease. The locks end at once, so that no renewal waits for them.
CREATE FUNCTION dibs.check_snapshot(n text, whose text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM FROM dibs.holders WHERE name = n AND token = whose AND NOT reserved FOR SHARE;
  IF NOT FOUND THEN
    PERFORM FROM dibs.names WHERE name = n FOR SHARE;
    IF NOT FOUND THEN
      INSERT INTO dibs.names (name) VALUES (n) ON CONFLICT DO NOTHING; -- fails if there is one by now
    END IF;
  END IF;
  RAISE EXCEPTION USING ERRCODE = 'DIBS0';
EXCEPTION WHEN SQLSTATE 'DIBS0' THEN
END $$;

-- guard prevents the end of a lease until the transaction of the user ends. It reports whether the
-- lease is held, with a fence unless that is 0. Each statement sees what was committed before it,
-- unless the transaction has one snapshot.
CREATE FUNCTION dibs.guard(n text, whose text, its_fence bigint) RETURNS boolean LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET jit = off AS $$
BEGIN
  PERFORM dibs.check_guard();
  PERFORM pg_advisory_xact_lock_shared(dibs.guard_key(n, whose));
  IF current_setting('transaction_isolation') IN ('repeatable read', 'serializable') THEN
    PERFORM dibs.check_snapshot(n, whose);
  END IF;
  PERFORM FROM dibs.names WHERE name = n AND token = whose AND NOT reserved AND expires > dibs.now() AND its_fence IN (0, fence);
  IF NOT FOUND THEN
    PERFORM FROM dibs.holders WHERE name = n AND token = whose AND NOT reserved AND expires > dibs.now() AND its_fence IN (0, fence);
  END IF;
  RETURN FOUND;
END $$;

-- guards returns the keys of the leases that transactions guard. Others that use advisory locks
-- may add keys, which no lease has.
CREATE FUNCTION dibs.guards() RETURNS SETOF bigint LANGUAGE sql VOLATILE AS $$
  SELECT classid::bigint << 32 | objid::bigint FROM pg_locks
  WHERE locktype = 'advisory' AND objsubid = 1 AND mode = 'ShareLock' AND granted
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
$$;

-- guarded undoes the transaction because a guard prevents it.
CREATE FUNCTION dibs.guarded() RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'a transaction guards the lease' USING ERRCODE = 'DIBS2';
END $$;

-- lock locks the names, in one order for all transactions, and adds those that are missing. It
-- waits until a time at most, and returns the time. After until it changes nothing.
CREATE FUNCTION dibs.lock(wanted text[], until bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
  n text;
  at bigint := dibs.now();
  last record;
BEGIN
  PERFORM dibs.check_isolation();
  IF at > until THEN
    RETURN at;
  END IF;
  IF current_setting('synchronous_commit') = 'off' THEN
    PERFORM set_config('synchronous_commit', 'on', true);
  END IF;
  PERFORM set_config('lock_timeout', greatest(least((until - at) / 1000, 60000), 1)::text, true);
  FOR n IN SELECT DISTINCT w COLLATE "C" FROM unnest(wanted) AS w ORDER BY 1 LOOP
    LOOP
      PERFORM FROM dibs.names WHERE name = n FOR NO KEY UPDATE;
      EXIT WHEN FOUND;
      INSERT INTO dibs.names (name) VALUES (n) ON CONFLICT DO NOTHING;
      CONTINUE WHEN NOT FOUND;
      -- A later statement than the INSERT: it sees the removal of an earlier row of the name.
      SELECT fence, ticket INTO last FROM dibs.removed;
      UPDATE dibs.names SET fence = last.fence, ticket = last.ticket WHERE name = n;
      EXIT;
    END LOOP;
  END LOOP;
  RETURN dibs.now();
END $$;

-- waiter_ttl is how long a queue entry lives without a heartbeat, and the longest TTL of a
-- hand-off: driver.WaiterTTL.
CREATE FUNCTION dibs.waiter_ttl() RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT 5000000::bigint';

-- A waiter that sends no heartbeat is dead, or the database stalled, or its clock was set. So
-- silence is judged in two steps. The first request for a name that finds a heartbeat overdue
-- records the time in "missed", and notifies the waiter to retry: the database answers by then. A
-- live waiter uses the time from there to its drop. It receives the notification, or repeats a
-- request that failed at least every second. A stall of any length, and a step of the clock, take
-- no waiter's place in this way.

-- overdue is the age from which on a heartbeat is missing. A client sends one every 2.5 s.
CREATE FUNCTION dibs.overdue() RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT 2750000::bigint';

-- drop_at returns when a queue entry ends unless a heartbeat arrives, or, if none is missing so
-- far, when one is.
CREATE FUNCTION dibs.drop_at(heartbeat bigint, missed bigint) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
  SELECT CASE WHEN missed = 0 THEN heartbeat + dibs.overdue()
    ELSE greatest(heartbeat + dibs.waiter_ttl(), missed + dibs.waiter_ttl() - dibs.overdue()) END
$$;

-- is_odd reports whether record_missed has something to change in a queue entry.
CREATE FUNCTION dibs.is_odd(heartbeat bigint, missed bigint, at bigint) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
  SELECT missed = 0 AND heartbeat + dibs.overdue() <= at OR missed > at OR heartbeat > at + 1000000
$$;

-- Tickets are multiples of 16. The numbers up to the next multiple are for the same waiter, after
-- it lost its queue entry. It so has its former place with another ticket, and the notification of
-- a grant that it missed is not mistaken for a new one. If a reply with the next ticket is lost, the
-- waiter gets this ticket twice: then the fence of the reply shows which grants are earlier. A waiter
-- that has used them all joins at the end.

-- next_ticket returns a ticket after the last one.
CREATE FUNCTION dibs.next_ticket(last bigint, at bigint) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
  SELECT (greatest(last, at) / 16 + 1) * 16
$$;

-- same_place returns the next ticket of a waiter that lost its queue entry; null if there is none.
CREATE FUNCTION dibs.same_place(its_ticket bigint) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
  SELECT CASE WHEN its_ticket > 0 AND (its_ticket + 1) % 16 <> 0 THEN its_ticket + 1 END
$$;

-- end_exclusive ends the lease of the exclusive holder, whose name is locked. While a
-- transaction guards the lease it only expires, the first waiter retries, and the result is false.
CREATE FUNCTION dibs.end_exclusive(n text) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  whose text;
BEGIN
  SELECT token INTO whose FROM dibs.names WHERE name = n;
  IF dibs.may_end(n, whose) THEN
    UPDATE dibs.names SET token = '', client = '', reserved = false, asked = false WHERE name = n;
    RETURN true;
  END IF;
  UPDATE dibs.names SET reserved = true, asked = false, expires = 0 WHERE name = n AND expires > 0;
  IF FOUND THEN
    PERFORM dibs.notify_head(n, dibs.now());
  END IF;
  RETURN false;
END $$;

-- end_shared ends the lease of a token, or with kept what it has reserved, likewise. It waits for
-- a renewal: only a guard is skipped.
CREATE FUNCTION dibs.end_shared(n text, whose text, kept boolean) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  freed bigint;
BEGIN
  PERFORM FROM dibs.holders WHERE name = n AND token = whose AND reserved = kept FOR NO KEY UPDATE;
  IF FOUND AND dibs.may_end(n, whose) THEN
    DELETE FROM dibs.holders WHERE name = n AND token = whose AND reserved = kept RETURNING weight INTO freed;
    UPDATE dibs.names SET used = used - freed, asked = asked AND used > freed WHERE name = n;
    RETURN true;
  END IF;
  UPDATE dibs.holders SET expires = 0 WHERE name = n AND token = whose AND reserved = kept AND expires > 0;
  IF FOUND THEN
    PERFORM dibs.notify_head(n, dibs.now());
  END IF;
  RETURN false;
END $$;

-- end_expired ends the leases of shares that have expired, unless a transaction guards them.
CREATE FUNCTION dibs.end_expired(n text, at bigint) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  freed bigint;
BEGIN
  WITH expired AS (
    SELECT token, reserved FROM dibs.holders WHERE name = n AND expires <= at FOR UPDATE SKIP LOCKED
  ), ending AS (
    SELECT token, reserved FROM expired WHERE dibs.may_end(n, token)
  ), ended AS (
    DELETE FROM dibs.holders h USING ending e
    WHERE h.name = n AND h.token = e.token AND h.reserved = e.reserved RETURNING h.weight
  )
  SELECT sum(weight) INTO freed FROM ended;
  UPDATE dibs.names SET used = used - freed, asked = asked AND used > freed WHERE name = n AND freed > 0;
  RETURN freed > 0 IS TRUE;
END $$;

-- expire ends the leases of a locked name that have expired, and reports whether there were any.
CREATE FUNCTION dibs.expire(n text, at bigint) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  r dibs.names;
  changed boolean := false;
BEGIN
  SELECT * INTO r FROM dibs.names WHERE name = n;
  IF r.token <> '' AND r.expires <= at THEN
    changed := dibs.end_exclusive(n);
  END IF;
  IF r.used > 0 THEN
    changed := dibs.end_expired(n, at) OR changed;
  END IF;
  RETURN changed;
END $$;

-- holds reports whether a token holds a locked name.
CREATE FUNCTION dibs.holds(r dibs.names, whose text, at bigint) RETURNS boolean LANGUAGE sql AS $$
  SELECT r.token = whose AND NOT r.reserved AND r.expires > at
    OR r.used > 0 AND EXISTS (
      SELECT FROM dibs.holders WHERE name = r.name AND token = whose AND NOT reserved AND expires > at
    )
$$;

-- fits reports whether there is room for a token that does not hold the locked name. There is none
-- beside an earlier lease of the same token that has ended and that a transaction guards.
CREATE FUNCTION dibs.fits(r dibs.names, whose text, weight integer, most integer) RETURNS boolean LANGUAGE sql AS $$
  SELECT r.token = '' AND r.used <= most - weight
    AND (r.used = 0 OR NOT EXISTS (SELECT FROM dibs.holders h WHERE h.name = r.name AND h.token = whose AND NOT h.reserved))
$$;

-- record_missed records whose heartbeat is missing, and notifies the first of them to retry: those further
-- back have until their turn. If the clock has gone back, heartbeats after the present time count
-- as sent now.
CREATE FUNCTION dibs.record_missed(n text, at bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  UPDATE dibs.waiters SET heartbeat = least(heartbeat, at), missed = CASE WHEN heartbeat + dibs.overdue() <= at THEN at ELSE 0 END
  WHERE name = n AND dibs.is_odd(heartbeat, missed, at);
  PERFORM dibs.notify(w.client, 'r ' || w.token)
  FROM (SELECT client, token FROM dibs.waiters WHERE name = n AND missed = at ORDER BY ticket, token LIMIT 64) AS w;
END $$;

-- head returns the first waiter of a locked name that is not dead, or null. It removes dead ones
-- before it.
CREATE FUNCTION dibs.head(n text, at bigint) RETURNS dibs.waiters LANGUAGE plpgsql AS $$
DECLARE
  w dibs.waiters;
BEGIN
  LOOP
    SELECT * INTO w FROM dibs.waiters WHERE name = n ORDER BY ticket, token LIMIT 1;
    EXIT WHEN NOT FOUND;
    IF dibs.is_odd(w.heartbeat, w.missed, at) THEN
      PERFORM dibs.record_missed(n, at);
      CONTINUE;
    END IF;
    EXIT WHEN w.missed = 0 OR dibs.drop_at(w.heartbeat, w.missed) > at;
    PERFORM dibs.remove_dead(n, at);
  END LOOP;
  RETURN w;
END $$;

-- remove_dead removes all dead waiters of a locked name, but none that sends a heartbeat meanwhile.
CREATE FUNCTION dibs.remove_dead(n text, at bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  gone integer;
BEGIN
  PERFORM dibs.record_missed(n, at);
  DELETE FROM dibs.waiters WHERE name = n AND missed > 0 AND dibs.drop_at(heartbeat, missed) <= at;
  GET DIAGNOSTICS gone = ROW_COUNT;
  IF gone > 0 THEN
    UPDATE dibs.names SET waiting = waiting - gone WHERE name = n;
  END IF;
END $$;

-- is_silent reports whether the name is not granted to a waiter before its next request. It blocks
-- those behind it until it is dead.
CREATE FUNCTION dibs.is_silent(w dibs.waiters, at bigint) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
  SELECT w.heartbeat + dibs.waiter_ttl() <= at
$$;

-- leave removes a waiter, and reports whether there was one.
CREATE FUNCTION dibs.leave(n text, whose text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  DELETE FROM dibs.waiters WHERE name = n AND token = whose;
  IF NOT FOUND THEN
    RETURN false;
  END IF;
  UPDATE dibs.names SET waiting = waiting - 1 WHERE name = n;
  RETURN true;
END $$;

-- notify sends a message to a client. It arrives when the transaction is committed.
CREATE FUNCTION dibs.notify(client text, message text) RETURNS void LANGUAGE sql AS $$
  SELECT pg_notify('dibs_' || left(encode(sha256(convert_to(client, 'UTF8')), 'hex'), 32), message)
$$;

-- notify_head makes the first waiter retry, to learn when the name is free.
CREATE FUNCTION dibs.notify_head(n text, at bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  w dibs.waiters := dibs.head(n, at);
BEGIN
  IF w.token IS NOT NULL THEN
    PERFORM dibs.notify(w.client, 'r ' || w.token);
  END IF;
END $$;

-- notify_wanted notifies the holders that asked for it that a request waits, of many only some.
CREATE FUNCTION dibs.notify_wanted(n text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  r dibs.names;
  h dibs.holders;
BEGIN
  UPDATE dibs.names SET asked = false WHERE name = n RETURNING * INTO r;
  IF r.token <> '' THEN
    PERFORM dibs.notify(r.client, 'w ' || r.token);
  END IF;
  FOR h IN
    UPDATE dibs.holders SET asked = false WHERE name = n AND asked AND token IN (
      SELECT token FROM dibs.holders WHERE name = n AND asked LIMIT 64 -- driver.MaxWanted
    ) RETURNING *
  LOOP
    PERFORM dibs.notify(h.client, 'w ' || h.token);
  END LOOP;
END $$;

-- hold makes a token a holder of a locked name that has room for it.
CREATE FUNCTION dibs.hold(n text, whose text, its_client text, its_weight integer, most integer, new_fence bigint, until bigint)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF its_weight = most THEN
    UPDATE dibs.names SET token = whose, client = its_client, weight = its_weight, expires = until, fence = new_fence
    WHERE name = n;
    RETURN;
  END IF;
  INSERT INTO dibs.holders (name, token, client, weight, fence, expires) VALUES (n, whose, its_client, its_weight, new_fence, until);
  UPDATE dibs.names SET used = used + its_weight, fence = new_fence WHERE name = n;
END $$;

-- serve grants a locked name to the waiters that fit, in order. One that does not fit blocks those
-- behind it. So does a silent one, until it is dead, and one for several names: they are notified to
-- retry if something has changed. A lease begins when its queue entry is gone: a client counts it
-- from its last heartbeat, which locks the entry and not the name.
CREATE FUNCTION dibs.serve(n text, at bigint, changed boolean) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  r dibs.names;
  w dibs.waiters;
  new_fence bigint;
  began bigint;
BEGIN
  LOOP
    SELECT * INTO r FROM dibs.names WHERE name = n;
    EXIT WHEN r.waiting = 0 OR r.token <> '';
    w := dibs.head(n, at);
    EXIT WHEN w.token IS NULL OR NOT dibs.fits(r, w.token, w.weight, w.most);
    IF w.several OR dibs.is_silent(w, at) THEN
      IF changed THEN
        PERFORM dibs.notify(w.client, 'r ' || w.token);
      END IF;
      EXIT;
    END IF;
    PERFORM dibs.leave(n, w.token);
    began := dibs.now();
    new_fence := greatest(r.fence + 1, r.issued + 1, at);
    PERFORM dibs.hold(n, w.token, w.client, w.weight, w.most, new_fence, began + w.ttl);
    PERFORM dibs.notify(w.client, 'g ' || new_fence || ' ' || w.ticket || ' ' || began || ' ' || w.token);
    changed := true;
  END LOOP;
END $$;

-- busy describes the holder of a locked name that expires first, other than the lease of a token.
CREATE FUNCTION dibs.busy(r dibs.names, whose text, at bigint, OUT holder text, OUT kept boolean, OUT remaining bigint) LANGUAGE plpgsql AS $$
DECLARE
  ends bigint;
BEGIN
  IF r.token <> '' THEN
    holder := r.token;
    kept := r.reserved;
    ends := r.expires;
  ELSE
    SELECT h.token, h.reserved, h.expires INTO holder, kept, ends
    FROM dibs.holders h WHERE h.name = r.name AND (h.token <> whose OR h.reserved OR h.expires <= at) ORDER BY h.expires LIMIT 1;
  END IF;
  IF ends IS NULL THEN -- a waiter comes first, which may be dead
    SELECT greatest(dibs.drop_at(w.heartbeat, w.missed), at) INTO ends FROM dibs.waiters w WHERE w.name = r.name ORDER BY w.ticket, w.token LIMIT 1;
    remaining := coalesce(ends - at, dibs.waiter_ttl());
  ELSE
    -- A lease that has expired and still exists is guarded by a transaction, whose end nobody announces.
    remaining := CASE WHEN ends <= at THEN 20000 ELSE ends - at END;
  END IF;
  holder := coalesce(holder, '');
  kept := coalesce(kept, false);
END $$;

-- has_silent reports whether one of those just before a waiter is silent. Each waiter so checks
-- some, and not all: a thousand heartbeats that each looked at the whole queue would take all the time.
CREATE FUNCTION dibs.has_silent(n text, whose text, its_ticket bigint, at bigint) RETURNS boolean LANGUAGE sql STABLE AS $$
  SELECT coalesce(bool_or(dibs.is_odd(heartbeat, missed, at) OR missed > 0 AND dibs.drop_at(heartbeat, missed) <= at), false) FROM (
    SELECT heartbeat, missed FROM dibs.waiters WHERE name = n AND (ticket, token) < (its_ticket, whose)
    ORDER BY ticket DESC, token DESC LIMIT 16
  ) AS before_it
$$;

-- place_of returns the position of a waiter. It counts up to 100 waiters before it.
CREATE FUNCTION dibs.place_of(n text, whose text, its_ticket bigint) RETURNS bigint LANGUAGE sql STABLE AS $$
  SELECT count(*) + 1 FROM (
    SELECT FROM dibs.waiters WHERE name = n AND (ticket, token) < (its_ticket, whose) ORDER BY ticket, token LIMIT 100
  ) AS before_it
$$;

-- beat is the heartbeat of a waiter while somebody else holds the name alone. It does not lock the
-- name: with a thousand waiters, nobody else would have a turn. place is null, and nothing is changed
-- or locked, if more than a heartbeat may be needed. The row of the waiter decides: whoever ends the
-- wait deletes it. A heartbeat that a crash of the server loses is as one that a stall delays, so
-- its commit does not wait for the disk.
CREATE FUNCTION dibs.beat(
  n text, whose text, at bigint,
  OUT last_fence bigint, OUT holder text, OUT kept boolean, OUT remaining bigint, OUT its_ticket bigint, OUT place bigint
) LANGUAGE plpgsql AS $$
BEGIN
  PERFORM dibs.check_isolation();
  SELECT m.fence, m.token, m.reserved, m.expires - at, w.ticket INTO last_fence, holder, kept, remaining, its_ticket
  FROM dibs.names m JOIN dibs.waiters w ON w.name = m.name AND w.token = whose
  WHERE m.name = n AND m.token NOT IN ('', whose) AND NOT m.asked AND m.expires > at;
  IF NOT FOUND OR dibs.has_silent(n, whose, its_ticket, at) THEN
    RETURN;
  END IF;
  UPDATE dibs.waiters w SET heartbeat = at, missed = 0
  FROM (SELECT FROM dibs.waiters WHERE name = n AND token = whose AND ticket = its_ticket FOR NO KEY UPDATE SKIP LOCKED) AS mine
  WHERE w.name = n AND w.token = whose;
  IF FOUND THEN
    place := dibs.place_of(n, whose, its_ticket);
    PERFORM set_config('synchronous_commit', 'off', true);
  END IF;
END $$;

-- acquire acquires all wanted names or none. Without room, it adds a queue entry to each if
-- queue is set, and no earlier grant has a larger fence than new_fence. A null held means that the
-- request came after its time.
CREATE FUNCTION dibs.acquire(
  wanted text[], whose text, its_client text, its_ttl bigint, its_weight integer, most integer, queue boolean, its_ticket bigint, until bigint,
  OUT at bigint, OUT held boolean, OUT new_fence bigint,
  OUT busy_name text, OUT holder text, OUT kept boolean, OUT remaining bigint, OUT new_ticket bigint, OUT place bigint
) LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  n text;
  r dibs.names;
  w dibs.waiters;
  b record;
BEGIN
  at := dibs.now();
  IF at <= until AND queue AND its_ticket > 0 AND cardinality(wanted) = 1 THEN
    SELECT * INTO new_fence, holder, kept, remaining, new_ticket, place FROM dibs.beat(wanted[1], whose, at);
    IF place IS NOT NULL THEN
      held := false;
      busy_name := wanted[1];
      RETURN;
    END IF;
  END IF;
  at := dibs.lock(wanted, until);
  IF at > until THEN
    RETURN;
  END IF;
  IF queue AND its_ticket = 0 AND cardinality(wanted) = 1 THEN
    -- The usual case, in few statements: a new waiter behind an exclusive holder.
    SELECT * INTO r FROM dibs.names WHERE name = wanted[1];
    IF r.token <> '' AND r.token <> whose AND r.expires > at THEN
      INSERT INTO dibs.waiters (name, token, client, weight, most, ttl, several, ticket, joined, heartbeat, missed)
      VALUES (r.name, whose, its_client, its_weight, most, least(its_ttl, dibs.waiter_ttl()),
        false, dibs.next_ticket(r.ticket, at), at, at, 0) ON CONFLICT DO NOTHING RETURNING ticket INTO new_ticket;
      IF FOUND THEN
        UPDATE dibs.names SET waiting = waiting + 1, ticket = new_ticket WHERE name = r.name;
        IF r.asked THEN
          PERFORM dibs.notify_wanted(r.name);
        END IF;
        place := least(r.waiting, 100) + 1;
        held := false;
        new_fence := r.fence;
        busy_name := r.name;
        holder := r.token;
        kept := r.reserved;
        remaining := r.expires - at;
        RETURN;
      END IF;
    END IF;
  END IF;
  held := true;
  new_fence := at;
  FOREACH n IN ARRAY wanted LOOP
    PERFORM dibs.serve(n, at, dibs.expire(n, at));
    SELECT * INTO r FROM dibs.names WHERE name = n;
    new_fence := greatest(new_fence, r.fence + 1, r.issued + 1);
    CONTINUE WHEN dibs.holds(r, whose, at);
    IF dibs.fits(r, whose, its_weight, most) THEN
      CONTINUE WHEN r.waiting = 0;
      w := dibs.head(n, at);
      CONTINUE WHEN w.token IS NULL OR w.token = whose;
    END IF;
    b := dibs.busy(r, whose, at);
    IF held OR b.remaining < remaining THEN
      busy_name := n;
      holder := b.holder;
      kept := b.kept;
      remaining := b.remaining;
    END IF;
    held := false;
  END LOOP;
  IF NOT held THEN
    -- A waiter for several names holds none.
    FOREACH n IN ARRAY wanted LOOP
      SELECT * INTO r FROM dibs.names WHERE name = n;
      IF dibs.holds(r, whose, at) THEN
        PERFORM dibs.serve(n, at, dibs.end_lease(r, whose, false));
      END IF;
    END LOOP;
    SELECT max(fence) INTO new_fence FROM dibs.names WHERE name = ANY (wanted);
    IF queue THEN
      SELECT * INTO new_ticket, place FROM dibs.enqueue(wanted, whose, its_client, its_ttl, its_weight, most, its_ticket, at);
    END IF;
    RETURN;
  END IF;
  FOREACH n IN ARRAY wanted LOOP
    SELECT * INTO r FROM dibs.names WHERE name = n;
    IF r.waiting > 0 THEN
      PERFORM dibs.leave(n, whose);
    END IF;
    IF r.token = whose AND NOT r.reserved THEN
      UPDATE dibs.names SET expires = greatest(expires, at + its_ttl), fence = new_fence WHERE name = n;
    ELSIF dibs.holds(r, whose, at) THEN
      UPDATE dibs.holders h SET expires = greatest(h.expires, at + its_ttl), fence = new_fence
      WHERE h.name = n AND h.token = whose AND NOT h.reserved;
      UPDATE dibs.names SET fence = new_fence WHERE name = n;
    ELSE
      PERFORM dibs.hold(n, whose, its_client, its_weight, most, new_fence, at + its_ttl);
    END IF;
  END LOOP;
END $$;

-- end_lease ends the lease of a token, or with kept what an earlier release has reserved. The
-- result is false if there is none, or if a transaction guards it.
CREATE FUNCTION dibs.end_lease(r dibs.names, whose text, kept boolean) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  IF r.token = whose AND r.reserved = kept THEN
    RETURN dibs.end_exclusive(r.name);
  ELSIF r.used > 0 THEN
    RETURN dibs.end_shared(r.name, whose, kept);
  END IF;
  RETURN false;
END $$;

-- enqueue adds a queue entry for each name, or keeps those that exist. Each is a heartbeat. A waiter
-- that lost its entry has its former place by its last ticket.
CREATE FUNCTION dibs.enqueue(
  wanted text[], whose text, its_client text, its_ttl bigint, its_weight integer, most integer, its_ticket bigint, at bigint,
  OUT new_ticket bigint, OUT place bigint
) LANGUAGE plpgsql AS $$
DECLARE
  n text;
  joins boolean;
  notifies boolean;
BEGIN
  SELECT max(ticket) INTO new_ticket FROM dibs.waiters WHERE name = ANY (wanted) AND token = whose;
  IF new_ticket IS NULL THEN
    SELECT coalesce(dibs.same_place(its_ticket), dibs.next_ticket(max(ticket), at)) INTO new_ticket FROM dibs.names WHERE name = ANY (wanted);
  END IF;
  place := 0;
  FOREACH n IN ARRAY wanted LOOP
    UPDATE dibs.waiters SET heartbeat = at, missed = 0 WHERE name = n AND token = whose;
    joins := NOT FOUND;
    IF joins THEN
      INSERT INTO dibs.waiters (name, token, client, weight, most, ttl, several, ticket, joined, heartbeat, missed)
      VALUES (n, whose, its_client, its_weight, most, least(its_ttl, dibs.waiter_ttl()),
        cardinality(wanted) > 1, new_ticket, at, at, 0);
    END IF;
    UPDATE dibs.names SET waiting = waiting + joins::integer, ticket = greatest(ticket, new_ticket)
    WHERE name = n AND (joins OR asked) RETURNING asked INTO notifies;
    IF notifies THEN
      PERFORM dibs.notify_wanted(n);
    END IF;
    WHILE dibs.has_silent(n, whose, new_ticket, at) LOOP
      PERFORM dibs.remove_dead(n, at);
    END LOOP;
    place := greatest(place, dibs.place_of(n, whose, new_ticket));
  END LOOP;
END $$;

-- release ends a lease, or keeps its name unavailable for some time. With unreserve it ends what
-- an earlier release has reserved. A null held means that the request came after its time.
CREATE FUNCTION dibs.release(n text, whose text, reserve bigint, unreserve boolean, until bigint, OUT at bigint, OUT held boolean)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  r dibs.names;
  changed boolean;
BEGIN
  at := dibs.lock(ARRAY[n], until);
  IF at > until THEN
    RETURN;
  END IF;
  changed := dibs.expire(n, at);
  SELECT * INTO r FROM dibs.names WHERE name = n;
  IF unreserve THEN
    held := r.token = whose AND r.reserved AND r.expires > at
      OR EXISTS (SELECT FROM dibs.holders WHERE name = n AND token = whose AND reserved AND expires > at);
  ELSE
    held := dibs.holds(r, whose, at);
  END IF;
  IF held AND NOT unreserve AND reserve > 0 THEN
    PERFORM dibs.end_shared(n, whose, true); -- the token has reserved the name before
    -- A transaction guards the token: then its two rows become one.
    WITH gone AS (
      DELETE FROM dibs.holders WHERE name = n AND token = whose AND reserved RETURNING weight
    )
    UPDATE dibs.holders h SET weight = h.weight + gone.weight FROM gone WHERE h.name = n AND h.token = whose AND NOT h.reserved;
    UPDATE dibs.names SET reserved = true, asked = false, expires = at + reserve WHERE name = n AND token = whose AND NOT reserved;
    UPDATE dibs.holders SET reserved = true, asked = false, expires = at + reserve WHERE name = n AND token = whose AND NOT reserved;
    PERFORM dibs.notify_head(n, at);
  ELSIF held THEN
    changed := dibs.end_lease(r, whose, unreserve) OR changed;
  END IF;
  PERFORM dibs.serve(n, at, changed);
END $$;

-- release_in guards a lease, and ends it when this transaction commits: then its name stays
-- unavailable for what is left of a time. Until then the name is not locked. The result is the
-- number of the transaction, or null if the lease is not held.
CREATE FUNCTION dibs.release_in(n text, whose text, its_fence bigint, reserve bigint) RETURNS bigint LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET jit = off AS $$
BEGIN
  PERFORM dibs.check_isolation();
  IF current_setting('session_replication_role') = 'replica' THEN
    RAISE EXCEPTION 'session_replication_role is replica, so triggers do not fire' USING ERRCODE = 'DIBS5';
  END IF;
  IF NOT dibs.guard(n, whose, its_fence) THEN
    RETURN NULL;
  END IF;
  INSERT INTO dibs.releases (name, token, reserved) VALUES (n, whose, dibs.now() + reserve);
  RETURN txid_current();
END $$;

-- release_at_commit also comes with PREPARE TRANSACTION, after which the name would be locked for
-- all, and no waiter could be notified. The server refuses to prepare a transaction that has
-- notified, so each does. Nobody listens.
CREATE FUNCTION dibs.release_at_commit() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET jit = off AS $$
BEGIN
  PERFORM pg_notify('dibs', '');
  DELETE FROM dibs.releases WHERE name = NEW.name AND token = NEW.token;
  PERFORM dibs.release(NEW.name, NEW.token, greatest(NEW.reserved - dibs.now(), 0), false, 9223372036854775807);
  RETURN NULL;
END $$;

CREATE CONSTRAINT TRIGGER release_at_commit AFTER INSERT ON dibs.releases DEFERRABLE INITIALLY DEFERRED
FOR EACH ROW EXECUTE FUNCTION dibs.release_at_commit();

-- cancel ends the leases and queue entries of a token.
CREATE FUNCTION dibs.cancel(wanted text[], whose text, until bigint, OUT at bigint, OUT done boolean) LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  n text;
  r dibs.names;
  changed boolean;
BEGIN
  at := dibs.lock(wanted, until);
  IF at > until THEN
    RETURN;
  END IF;
  done := true;
  FOREACH n IN ARRAY wanted LOOP
    changed := dibs.expire(n, at);
    SELECT * INTO r FROM dibs.names WHERE name = n;
    changed := dibs.end_lease(r, whose, false) OR changed;
    changed := r.waiting > 0 AND dibs.leave(n, whose) OR changed;
    PERFORM dibs.serve(n, at, changed);
  END LOOP;
END $$;

-- resize changes the weight of a lease if it fits beside the other holders. A null held means
-- that the request came after its time.
CREATE FUNCTION dibs.resize(
  n text, whose text, its_client text, its_ttl bigint, its_weight integer, most integer, until bigint,
  OUT at bigint, OUT held boolean, OUT new_fence bigint, OUT holder text, OUT kept boolean, OUT remaining bigint
) LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  r dibs.names;
  old dibs.holders;
  changed boolean;
BEGIN
  at := dibs.lock(ARRAY[n], until);
  IF at > until THEN
    RETURN;
  END IF;
  changed := dibs.expire(n, at);
  SELECT * INTO r FROM dibs.names WHERE name = n;
  held := dibs.holds(r, whose, at);
  IF held THEN
    IF r.token = whose THEN
      old.weight := r.weight;
      old.expires := r.expires;
      old.asked := r.asked;
      held := its_weight <= most; -- it was alone
    ELSE
      SELECT * INTO old FROM dibs.holders WHERE name = n AND token = whose AND NOT reserved;
      held := r.used - old.weight <= most - its_weight;
    END IF;
  END IF;
  IF held THEN
    IF NOT dibs.end_lease(r, whose, false) THEN
      PERFORM dibs.guarded();
    END IF;
    new_fence := greatest(r.fence + 1, r.issued + 1, at);
    PERFORM dibs.hold(n, whose, its_client, its_weight, most, new_fence, greatest(old.expires, at + its_ttl));
    IF old.asked THEN
      UPDATE dibs.names SET asked = true WHERE name = n;
      UPDATE dibs.holders SET asked = true WHERE name = n AND token = whose;
    END IF;
    changed := true;
  ELSE
    SELECT * INTO holder, kept, remaining FROM dibs.busy(r, whose, at);
  END IF;
  PERFORM dibs.serve(n, at, changed);
END $$;

-- reserve_fences reserves further fences for the exclusive holder of a name, and returns the last
-- one. A null held means that the request came after its time.
CREATE FUNCTION dibs.reserve_fences(n text, whose text, how_many bigint, at_least bigint, until bigint, OUT at bigint, OUT held boolean, OUT last bigint) LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  at := dibs.lock(ARRAY[n], until);
  IF at > until THEN
    RETURN;
  END IF;
  UPDATE dibs.names r SET issued = greatest(greatest(r.fence, r.issued) + how_many, at_least)
  WHERE r.name = n AND r.token = whose AND NOT r.reserved AND r.expires > at RETURNING r.issued INTO last;
  held := FOUND;
END $$;

-- wanted has a client notified of the first waiter for a name that its token holds. If a request
-- waits already, and is not silent, it reports that instead. A null wanted means that the request came after its time.
CREATE FUNCTION dibs.wanted(n text, whose text, its_client text, until bigint, OUT at bigint, OUT wanted boolean) LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  r dibs.names;
BEGIN
  at := dibs.lock(ARRAY[n], until);
  IF at > until THEN
    RETURN;
  END IF;
  PERFORM dibs.serve(n, at, dibs.expire(n, at));
  SELECT * INTO r FROM dibs.names WHERE name = n;
  wanted := false;
  IF NOT dibs.holds(r, whose, at) THEN
    RETURN;
  END IF;
  PERFORM dibs.remove_dead(n, at);
  SELECT EXISTS (SELECT FROM dibs.waiters v WHERE v.name = n AND NOT dibs.is_silent(v, at)) INTO wanted;
  IF wanted THEN
    RETURN;
  END IF;
  UPDATE dibs.names SET asked = true, client = CASE WHEN token = whose THEN its_client ELSE client END WHERE name = n;
  UPDATE dibs.holders SET asked = true, client = its_client WHERE name = n AND token = whose AND NOT reserved;
END $$;

-- revoke ends the lease with a fence, and sends the reason to its holder.
CREATE FUNCTION dibs.revoke(n text, its_fence bigint, reason text, until bigint, OUT at bigint, OUT revoked boolean) LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  r dibs.names;
  h dibs.holders;
  changed boolean;
BEGIN
  at := dibs.lock(ARRAY[n], until);
  IF at > until THEN
    RETURN;
  END IF;
  changed := dibs.expire(n, at);
  SELECT * INTO r FROM dibs.names WHERE name = n;
  IF r.token <> '' AND r.fence = its_fence AND r.expires > at THEN
    h.token := r.token;
    h.client := r.client;
    h.reserved := r.reserved;
  ELSE
    SELECT * INTO h FROM dibs.holders WHERE name = n AND fence = its_fence AND expires > at;
  END IF;
  revoked := h.token IS NOT NULL;
  IF revoked THEN
    changed := dibs.end_lease(r, h.token, h.reserved) OR changed;
    IF NOT h.reserved THEN
      PERFORM dibs.notify(h.client, 'x ' || its_fence || ' ' || reason || E'\n' || h.token);
    END IF;
  END IF;
  PERFORM dibs.serve(n, at, changed);
END $$;

-- remove_unused looks at the next names, and removes those that nobody has used since a time. It
-- reports whether there are more names. Only one session does this at a time.
CREATE FUNCTION dibs.remove_unused(number integer, since bigint) RETURNS boolean LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  start text;
  final text;
  r dibs.names;
  at bigint := dibs.now();
  last record;
BEGIN
  SELECT after INTO start FROM dibs.removed FOR UPDATE SKIP LOCKED;
  IF NOT FOUND THEN
    RETURN true;
  END IF;
  SELECT max(name) INTO final FROM (SELECT name FROM dibs.names WHERE name > start ORDER BY name LIMIT number) AS next;
  IF final IS NULL THEN
    UPDATE dibs.removed SET after = '' WHERE after <> '';
    RETURN false;
  END IF;
  -- Holders and waiters that have died, if nobody has asked for the name since.
  FOR r IN
    SELECT * FROM dibs.names
    WHERE name > start AND name <= final AND (token <> '' AND expires <= at OR used > 0 OR waiting > 0) FOR NO KEY UPDATE SKIP LOCKED
  LOOP
    PERFORM dibs.serve(r.name, at, dibs.expire(r.name, at));
    PERFORM dibs.remove_dead(r.name, at);
  END LOOP;
  WITH unused AS (
    SELECT name FROM dibs.names
    WHERE name > start AND name <= final AND waiting = 0 AND used = 0 AND token = '' AND fence < since
    FOR UPDATE SKIP LOCKED
  ), gone AS (
    DELETE FROM dibs.names n USING unused u WHERE n.name = u.name RETURNING greatest(n.fence, n.issued) AS fence, n.ticket
  )
  SELECT max(fence) AS fence, max(ticket) AS ticket INTO last FROM gone;
  UPDATE dibs.removed SET fence = greatest(fence, last.fence), ticket = greatest(ticket, last.ticket), after = final;
  RETURN true;
END $$;

-- late undoes a grant that has waited for the row of the name until the request was late. Such a
-- row is as it was before, so the condition of the statement is not checked again.
CREATE FUNCTION dibs.late() RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'the name was locked until the request was late';
END $$;

-- acquire_one acquires one name exclusively: a free name in one small update, and a new one in
-- one small insert. acquire does the rest.
CREATE FUNCTION dibs.acquire_one(
  n text, whose text, its_client text, its_ttl bigint, its_weight integer, most integer, queue boolean, its_ticket bigint, until bigint,
  OUT at bigint, OUT held boolean, OUT new_fence bigint,
  OUT busy_name text, OUT holder text, OUT kept boolean, OUT remaining bigint, OUT new_ticket bigint, OUT place bigint
) LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  at := dibs.now();
  IF at <= until AND NOT (queue AND its_ticket > 0) THEN
    IF current_setting('synchronous_commit') = 'off' THEN
      PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
    UPDATE dibs.names SET token = whose, client = its_client, weight = its_weight, expires = at + its_ttl, fence = greatest(fence + 1, issued + 1, at)
    WHERE name = n AND token = '' AND used = 0 AND waiting = 0 AND dibs.now() <= until -- it may have waited
    RETURNING fence INTO new_fence;
    IF NOT FOUND THEN
      -- One statement sees that the name was removed, and with which fence.
      INSERT INTO dibs.names (name, token, client, weight, expires, fence, ticket)
      SELECT n, whose, its_client, its_weight, at + its_ttl, greatest(r.fence + 1, at), r.ticket FROM dibs.removed r
      WHERE NOT EXISTS (SELECT FROM dibs.names WHERE name = n) AND dibs.now() <= until
      ON CONFLICT DO NOTHING
      RETURNING fence INTO new_fence;
    END IF;
    held := FOUND;
    IF held THEN
      IF dibs.now() > until THEN
        PERFORM dibs.late();
      END IF;
      RETURN;
    END IF;
  END IF;
  SELECT * INTO at, held, new_fence, busy_name, holder, kept, remaining, new_ticket, place
  FROM dibs.acquire(ARRAY[n], whose, its_client, its_ttl, its_weight, most, queue, its_ticket, until);
END $$;

-- release_one releases an exclusive lease: it frees the name, or grants it to the first waiter if
-- that is alive and requests one name exclusively. release does the rest, also if a transaction
-- guards the lease.
CREATE FUNCTION dibs.release_one(n text, whose text, until bigint, OUT at bigint, OUT held boolean) LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  r dibs.names;
  w dibs.waiters;
BEGIN
  at := dibs.now();
  IF at <= until AND current_setting('transaction_isolation') = 'read committed' THEN
    IF current_setting('synchronous_commit') = 'off' THEN
      PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
    SELECT * INTO r FROM dibs.names WHERE name = n AND token = whose AND NOT reserved AND expires > at FOR NO KEY UPDATE SKIP LOCKED;
    IF FOUND AND NOT dibs.may_end(n, whose) THEN
      r := NULL;
    END IF;
    IF r.waiting = 0 THEN
      UPDATE dibs.names SET token = '', client = '', asked = false WHERE name = n;
      held := true;
      RETURN;
    ELSIF r.waiting > 0 THEN
      SELECT * INTO w FROM dibs.waiters WHERE name = n ORDER BY ticket, token LIMIT 1;
      IF w.weight = w.most AND NOT w.several AND NOT dibs.is_silent(w, at) THEN
        DELETE FROM dibs.waiters WHERE name = n AND token = w.token;
        at := dibs.now(); -- see serve
        r.fence := greatest(r.fence + 1, r.issued + 1, at);
        UPDATE dibs.names SET token = w.token, client = w.client, weight = w.weight, expires = at + w.ttl, fence = r.fence, waiting = waiting - 1
        WHERE name = n;
        PERFORM dibs.notify(w.client, 'g ' || r.fence || ' ' || w.ticket || ' ' || at || ' ' || w.token);
        held := true;
        RETURN;
      END IF;
    END IF;
  END IF;
  SELECT * INTO at, held FROM dibs.release(n, whose, 0, false, until);
END $$;
