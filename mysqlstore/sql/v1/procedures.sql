-- Each verb is one call of a procedure, so that a name is locked only while the server works,
-- never during a round trip. Each statement has to see what others have committed before it,
-- so the level is read committed. now_us() is the time of the statement by the server's clock,
-- waiter_ttl() is driver.WaiterTTL, and max_wanted() is driver.MaxWanted: the store replaces them,
-- because a function of the server needs rights that a procedure does not. So it does overdue(),
-- the age from which on a heartbeat is missing (a client sends one every 2.5 s), and drop_at() and
-- is_odd(), which are conditions on a row of dibs_waiters at the time "at".
--
-- A waiter that sends no heartbeat is dead, or the database stalled, or its clock was set. So
-- silence is judged in two steps. The first request for a name that finds a heartbeat overdue
-- records the time in "missed", and notifies the waiter to retry: the database answers by then. A
-- live waiter uses the time from there to its drop. It receives the notification, or repeats a
-- request that failed at least every second. A stall of any length, and a step of the clock, take
-- no waiter's place in this way.
--
--   drop_at()  when a queue entry ends unless a heartbeat arrives, or, if none is missing so far, when one is
--   is_odd()   record_missed has something to change
--
-- Tickets are multiples of 16. The numbers up to the next multiple are for the same waiter, after
-- it lost its queue entry. It so has its former place with another ticket, and the notification of
-- a grant that it missed is not mistaken for a new one. If a reply with the next ticket is lost, the
-- waiter gets this ticket twice: then the fence of the reply shows which grants are earlier. A waiter
-- that has used them all joins at the end.
--
-- A list of names has them in hexadecimal, in order, each with a comma after it.

-- next_name takes the first name of a list.
CREATE PROCEDURE dibs_next_name(INOUT rest LONGTEXT CHARACTER SET ascii, OUT n VARBINARY(512))
SQL SECURITY INVOKER
BEGIN
  SET n = UNHEX(SUBSTRING_INDEX(rest, ',', 1));
  SET rest = SUBSTRING(rest, LOCATE(',', rest) + 1);
END;

-- lock locks the names, in one order for all transactions, and adds those that are missing. It
-- returns the time. After until it changes nothing.
CREATE PROCEDURE dibs_lock(IN wanted LONGTEXT CHARACTER SET ascii, IN until BIGINT, OUT at BIGINT)
SQL SECURITY INVOKER
BEGIN
  DECLARE n VARBINARY(512);
  DECLARE found INT;
  DECLARE last_fence, last_ticket BIGINT;
  SET at = now_us();
  IF at <= until THEN
    WHILE wanted <> '' DO
      CALL dibs_next_name(wanted, n);
      SELECT COUNT(*) INTO found FROM dibs_names WHERE name = n FOR UPDATE;
      IF found = 0 THEN
        INSERT INTO dibs_names (name) VALUES (n) ON DUPLICATE KEY UPDATE name = n;
        -- A later statement than the INSERT: it sees the removal of an earlier row of the name.
        SELECT fence, ticket INTO last_fence, last_ticket FROM dibs_removed WHERE id = 1;
        UPDATE dibs_names SET fence = GREATEST(fence, last_fence), ticket = GREATEST(ticket, last_ticket) WHERE name = n;
      END IF;
    END WHILE;
    SET at = now_us();
  END IF;
END;

-- unguard removes the row that a guard would lock. It returns false, and does not wait, if
-- a transaction guards the lease. A reserved lease may have no such row.
CREATE PROCEDURE dibs_unguard(IN n VARBINARY(512), IN whose VARBINARY(512), OUT free BOOLEAN)
SQL SECURITY INVOKER
BEGIN
  SELECT COUNT(*) INTO free FROM dibs_guards WHERE name = n AND token = whose FOR UPDATE SKIP LOCKED;
  IF free THEN
    DELETE FROM dibs_guards WHERE name = n AND token = whose;
    DELETE FROM dibs_releases WHERE name = n AND token = whose;
  ELSE
    SELECT COUNT(*) = 0 INTO free FROM dibs_guards WHERE name = n AND token = whose;
  END IF;
END;

-- lock_guard locks the row of a lease until the transaction of the user ends, unless the row has a larger
-- fence. The result is held, lost, or the reason why the transaction cannot be guarded.
--
-- Inside a transaction SET TRANSACTION fails. XA END finds no such transaction only in one of XA, and
-- the DELETE fails in a read-only one. None of them changes anything.
--
-- A locking read of a row that does not exist would keep others from acquiring names, so a plain read is
-- before it. For the same reason no other table is read: a serializable transaction would lock it.
CREATE PROCEDURE dibs_lock_guard(IN n VARBINARY(512), IN whose VARBINARY(512), IN its_fence BIGINT, OUT result VARCHAR(10) CHARACTER SET ascii)
SQL SECURITY INVOKER
BEGIN
  DECLARE found BOOLEAN DEFAULT FALSE;
  SET result = 'ended';
  BEGIN
    DECLARE CONTINUE HANDLER FOR 1568 SET result = 'lost';
    SET TRANSACTION READ WRITE;
  END;
  BEGIN
    DECLARE CONTINUE HANDLER FOR SQLEXCEPTION BEGIN END;
    DECLARE CONTINUE HANDLER FOR 1397 SET result = 'xa';
    XA END 'unknown to dibs';
  END;
  IF result = 'lost' THEN
    DELETE FROM dibs_guards WHERE FALSE;
    SELECT COUNT(*) INTO found FROM dibs_guards WHERE name = n AND token = whose AND fence <= its_fence;
  END IF;
  IF found THEN
    SELECT IF(COUNT(*) > 0, 'held', 'lost') INTO result
    FROM dibs_guards WHERE name = n AND token = whose AND fence <= its_fence LOCK IN SHARE MODE;
  END IF;
END;

-- guard returns the result of lock_guard.
CREATE PROCEDURE dibs_guard(IN n VARBINARY(512), IN whose VARBINARY(512), IN its_fence BIGINT)
SQL SECURITY INVOKER
BEGIN
  DECLARE result VARCHAR(10) CHARACTER SET ascii;
  CALL dibs_lock_guard(n, whose, its_fence, result);
  SELECT result;
END;

-- release_in guards a lease, and releases it with the commit of this transaction: then its name stays
-- unavailable for what is left of a time. The name is not locked. The server has no trigger of a commit,
-- so a row says that the lease is released, and whoever next locks the name ends it. A message to an
-- address that only the caller has shows for a day that the transaction was committed.
CREATE PROCEDURE dibs_release_in(IN n VARBINARY(512), IN whose VARBINARY(512), IN its_fence BIGINT, IN reserve BIGINT, IN address VARBINARY(512))
SQL SECURITY INVOKER
BEGIN
  DECLARE result VARCHAR(10) CHARACTER SET ascii;
  DECLARE ends BIGINT DEFAULT IF(reserve > 0, now_us() + reserve, 0);
  CALL dibs_lock_guard(n, whose, its_fence, result);
  IF result = 'held' THEN
    INSERT INTO dibs_releases (name, token, until) VALUES (n, whose, ends) ON DUPLICATE KEY UPDATE until = ends;
    INSERT INTO dibs_messages (client, sent, message) VALUES (address, now_us() + 86400000000, '');
  END IF;
  SELECT result;
END;

-- notify sends a message to a client.
CREATE PROCEDURE dibs_notify(IN its_client VARBINARY(512), IN its_message VARBINARY(2048))
SQL SECURITY INVOKER
BEGIN
  INSERT INTO dibs_messages (client, sent, message) VALUES (its_client, now_us(), its_message);
END;

-- leave removes a waiter, and reports whether there was one.
CREATE PROCEDURE dibs_leave(IN n VARBINARY(512), IN whose VARBINARY(512), OUT left_it BOOLEAN)
SQL SECURITY INVOKER
BEGIN
  DELETE FROM dibs_waiters WHERE name = n AND token = whose;
  SET left_it = ROW_COUNT() > 0;
  IF left_it THEN
    UPDATE dibs_names SET waiting = waiting - 1 WHERE name = n;
  END IF;
END;

-- record_missed records whose heartbeat is missing, and notifies the first of them to retry: those further
-- back have until their turn. If the clock has gone back, heartbeats after the present time count
-- as sent now.
CREATE PROCEDURE dibs_record_missed(IN n VARBINARY(512), IN at BIGINT)
SQL SECURITY INVOKER
BEGIN
  UPDATE dibs_waiters SET missed = IF(heartbeat + overdue() <= at, at, 0), heartbeat = LEAST(heartbeat, at) WHERE name = n AND is_odd();
  INSERT INTO dibs_messages (client, sent, message)
  SELECT client, now_us(), CONCAT('r ', token) FROM dibs_waiters WHERE name = n AND missed = at ORDER BY ticket, token LIMIT max_wanted();
END;

-- remove_dead removes all dead waiters of a locked name.
CREATE PROCEDURE dibs_remove_dead(IN n VARBINARY(512), IN at BIGINT)
SQL SECURITY INVOKER
BEGIN
  DECLARE gone INT;
  CALL dibs_record_missed(n, at);
  DELETE FROM dibs_waiters WHERE name = n AND missed > 0 AND drop_at() <= at;
  SET gone = ROW_COUNT();
  IF gone > 0 THEN
    UPDATE dibs_names SET waiting = waiting - gone WHERE name = n;
  END IF;
END;

-- head returns the first waiter of a locked name that is not dead, or null. It removes dead ones. A
-- silent one gets the name with its next request only. It blocks those behind it until it is dead.
CREATE PROCEDURE dibs_head(IN n VARBINARY(512), IN at BIGINT, OUT whose VARBINARY(512), OUT its_client VARBINARY(512),
  OUT its_ticket BIGINT, OUT its_ttl BIGINT, OUT its_weight INT, OUT its_most INT, OUT its_several BOOLEAN, OUT its_silence BOOLEAN)
SQL SECURITY INVOKER
BEGIN
  DECLARE fine BOOLEAN DEFAULT FALSE;
  WHILE NOT fine DO
    SET whose = NULL, fine = TRUE;
    SELECT token, client, ticket, ttl, weight, most, several, heartbeat + waiter_ttl() <= at, NOT is_odd() AND NOT (missed > 0 AND drop_at() <= at)
    INTO whose, its_client, its_ticket, its_ttl, its_weight, its_most, its_several, its_silence, fine
    FROM dibs_waiters WHERE name = n ORDER BY ticket, token LIMIT 1;
    IF NOT fine THEN
      CALL dibs_remove_dead(n, at);
    END IF;
  END WHILE;
END;

-- notify_head makes the first waiter retry, to learn when the name is free.
CREATE PROCEDURE dibs_notify_head(IN n VARBINARY(512), IN at BIGINT)
SQL SECURITY INVOKER
BEGIN
  DECLARE whose, its_client VARBINARY(512);
  DECLARE its_ticket, its_ttl BIGINT;
  DECLARE its_weight, its_most INT;
  DECLARE its_several, its_silence BOOLEAN;
  CALL dibs_head(n, at, whose, its_client, its_ticket, its_ttl, its_weight, its_most, its_several, its_silence);
  IF whose IS NOT NULL THEN
    CALL dibs_notify(its_client, CONCAT('r ', whose));
  END IF;
END;

-- end_exclusive ends the lease of the exclusive holder, whose name is locked. While a
-- transaction guards the lease it only expires, and the first waiter retries.
CREATE PROCEDURE dibs_end_exclusive(IN n VARBINARY(512), IN whose VARBINARY(512), OUT ended BOOLEAN)
SQL SECURITY INVOKER
BEGIN
  CALL dibs_unguard(n, whose, ended);
  IF ended THEN
    UPDATE dibs_names SET token = '', client = '', reserved = FALSE, asked = FALSE WHERE name = n;
  ELSE
    UPDATE dibs_names SET reserved = TRUE, asked = FALSE, expires = 0 WHERE name = n AND expires > 0;
    IF ROW_COUNT() > 0 THEN
      CALL dibs_notify_head(n, now_us());
    END IF;
  END IF;
END;

-- end_shared ends the lease of a token, or with kept what it has reserved, likewise. If the token has
-- a later lease beside that, the guards are of the later one: see fits.
CREATE PROCEDURE dibs_end_shared(IN n VARBINARY(512), IN whose VARBINARY(512), IN kept BOOLEAN, OUT ended BOOLEAN)
SQL SECURITY INVOKER
BEGIN
  DECLARE freed INT;
  SELECT SUM(weight) INTO freed FROM dibs_holders WHERE name = n AND token = whose AND reserved = kept;
  SET ended = FALSE;
  IF freed IS NOT NULL THEN
    IF kept THEN
      SELECT COUNT(*) > 0 INTO ended FROM dibs_holders WHERE name = n AND token = whose AND NOT reserved;
    END IF;
    IF NOT ended THEN
      CALL dibs_unguard(n, whose, ended);
    END IF;
    IF ended THEN
      DELETE FROM dibs_holders WHERE name = n AND token = whose AND reserved = kept;
      UPDATE dibs_names SET asked = asked AND used > freed, used = used - freed WHERE name = n;
    ELSE
      UPDATE dibs_holders SET expires = 0 WHERE name = n AND token = whose AND reserved = kept AND expires > 0;
      IF ROW_COUNT() > 0 THEN
        CALL dibs_notify_head(n, now_us());
      END IF;
    END IF;
  END IF;
END;

-- end_expired ends the shares that have expired, unless a transaction guards them.
CREATE PROCEDURE dibs_end_expired(IN n VARBINARY(512), IN at BIGINT, INOUT changed BOOLEAN)
SQL SECURITY INVOKER
BEGIN
  DECLARE whose VARBINARY(512);
  DECLARE kept, ended, finished BOOLEAN DEFAULT FALSE;
  DECLARE expired CURSOR FOR SELECT token, reserved FROM dibs_holders WHERE name = n AND expires <= at;
  DECLARE CONTINUE HANDLER FOR NOT FOUND SET finished = TRUE;
  OPEN expired;
  FETCH expired INTO whose, kept;
  WHILE NOT finished DO
    CALL dibs_end_shared(n, whose, kept, ended);
    SET changed = changed OR ended, finished = FALSE;
    FETCH expired INTO whose, kept;
  END WHILE;
  CLOSE expired;
END;

-- end_lease ends the lease of a token, or with kept what an earlier release has reserved. The
-- result is false if there is none, or if a transaction guards it.
CREATE PROCEDURE dibs_end_lease(IN n VARBINARY(512), IN whose VARBINARY(512), IN kept BOOLEAN, OUT ended BOOLEAN)
SQL SECURITY INVOKER
BEGIN
  IF EXISTS (SELECT 1 FROM dibs_names WHERE name = n AND token = whose AND reserved = kept) THEN
    CALL dibs_end_exclusive(n, whose, ended);
  ELSE
    CALL dibs_end_shared(n, whose, kept, ended);
  END IF;
END;

-- reserve keeps the name of a lease unavailable until a time, instead of its end.
CREATE PROCEDURE dibs_reserve(IN n VARBINARY(512), IN whose VARBINARY(512), IN ends BIGINT, IN at BIGINT)
SQL SECURITY INVOKER
BEGIN
  DECLARE ended BOOLEAN;
  CALL dibs_unguard(n, whose, ended);
  CALL dibs_end_shared(n, whose, TRUE, ended); -- the token has reserved the name before
  UPDATE dibs_names SET reserved = TRUE, asked = FALSE, expires = ends WHERE name = n AND token = whose AND NOT reserved;
  UPDATE dibs_holders SET reserved = TRUE, asked = FALSE, expires = ends WHERE name = n AND token = whose AND NOT reserved;
  CALL dibs_notify_head(n, at);
END;

-- end_released ends the leases of a locked name that transactions have released.
CREATE PROCEDURE dibs_end_released(IN n VARBINARY(512), IN at BIGINT, INOUT changed BOOLEAN)
SQL SECURITY INVOKER
BEGIN
  DECLARE whose VARBINARY(512);
  DECLARE ends BIGINT;
  DECLARE ended, finished BOOLEAN DEFAULT FALSE;
  DECLARE released CURSOR FOR SELECT token, until FROM dibs_releases WHERE name = n;
  DECLARE CONTINUE HANDLER FOR NOT FOUND SET finished = TRUE;
  OPEN released;
  FETCH released INTO whose, ends;
  WHILE NOT finished DO
    IF ends > at THEN
      CALL dibs_reserve(n, whose, ends, at);
    ELSE
      CALL dibs_end_lease(n, whose, FALSE, ended);
      SET changed = changed OR ended;
    END IF;
    SET finished = FALSE;
    FETCH released INTO whose, ends;
  END WHILE;
  CLOSE released;
END;

-- expire ends the leases of a locked name that have expired, or that transactions have released. It
-- reports whether there were any.
CREATE PROCEDURE dibs_expire(IN n VARBINARY(512), IN at BIGINT, OUT changed BOOLEAN)
SQL SECURITY INVOKER
BEGIN
  DECLARE r_token VARBINARY(512);
  DECLARE r_expires, r_used BIGINT;
  DECLARE released, ended BOOLEAN;
  SET changed = FALSE;
  SELECT COUNT(*) > 0 INTO released FROM dibs_releases WHERE name = n; -- in an IF it would wait for a transaction
  IF released THEN
    CALL dibs_end_released(n, at, changed);
  END IF;
  SELECT token, expires, used INTO r_token, r_expires, r_used FROM dibs_names WHERE name = n;
  IF r_token <> '' AND r_expires <= at THEN
    CALL dibs_end_exclusive(n, r_token, ended);
    SET changed = changed OR ended;
  END IF;
  IF r_used > 0 THEN
    CALL dibs_end_expired(n, at, changed);
  END IF;
END;

-- holds reports whether a token holds a locked name.
CREATE PROCEDURE dibs_holds(IN n VARBINARY(512), IN whose VARBINARY(512), IN at BIGINT, OUT held BOOLEAN)
SQL SECURITY INVOKER
BEGIN
  SELECT EXISTS (SELECT 1 FROM dibs_names WHERE name = n AND token = whose AND NOT reserved AND expires > at)
    OR EXISTS (SELECT 1 FROM dibs_holders WHERE name = n AND token = whose AND NOT reserved AND expires > at)
  INTO held;
END;

-- notify_wanted notifies the holders that asked for it that a request waits, of many only some.
CREATE PROCEDURE dibs_notify_wanted(IN n VARBINARY(512))
SQL SECURITY INVOKER
BEGIN
  INSERT INTO dibs_messages (client, sent, message)
  SELECT client, now_us(), CONCAT('w ', token) FROM dibs_names WHERE name = n AND token <> '' AND asked;
  UPDATE dibs_names SET asked = FALSE WHERE name = n;
  INSERT INTO dibs_messages (client, sent, message)
  SELECT client, now_us(), CONCAT('w ', token) FROM dibs_holders WHERE name = n AND asked ORDER BY token LIMIT max_wanted();
  UPDATE dibs_holders SET asked = FALSE WHERE name = n AND asked ORDER BY token LIMIT max_wanted();
END;

-- hold makes a token a holder of a locked name that has room for it.
CREATE PROCEDURE dibs_hold(IN n VARBINARY(512), IN whose VARBINARY(512), IN its_client VARBINARY(512),
  IN its_weight INT, IN its_most INT, IN new_fence BIGINT, IN ends BIGINT)
SQL SECURITY INVOKER
BEGIN
  IF its_weight = its_most THEN
    UPDATE dibs_names SET token = whose, client = its_client, weight = its_weight, expires = ends, fence = new_fence WHERE name = n;
  ELSE
    INSERT INTO dibs_holders (name, token, client, weight, fence, expires) VALUES (n, whose, its_client, its_weight, new_fence, ends);
    UPDATE dibs_names SET used = used + its_weight, fence = new_fence WHERE name = n;
  END IF;
  INSERT INTO dibs_guards (name, token, fence) VALUES (n, whose, new_fence);
END;

-- fits reports whether a token that does not hold a locked name can become one of its holders. It
-- cannot beside an earlier lease of its own that a transaction guards.
CREATE PROCEDURE dibs_fits(IN n VARBINARY(512), IN whose VARBINARY(512), OUT fits BOOLEAN)
SQL SECURITY INVOKER
BEGIN
  SELECT COUNT(*) = 0 INTO fits FROM dibs_guards WHERE name = n AND token = whose;
  IF NOT fits AND NOT EXISTS (SELECT 1 FROM dibs_holders WHERE name = n AND token = whose AND NOT reserved) THEN
    CALL dibs_unguard(n, whose, fits); -- of a lease that was released and is reserved
  END IF;
END;

-- serve grants a locked name to the waiters that fit, in order. One that does not fit blocks those
-- behind it. So does a silent one, until it is dead, and one for several names: they are notified to
-- retry if something has changed.
CREATE PROCEDURE dibs_serve(IN n VARBINARY(512), IN at BIGINT, IN changed BOOLEAN)
SQL SECURITY INVOKER
BEGIN
  DECLARE whose, its_client, r_token VARBINARY(512);
  DECLARE its_ticket, its_ttl, r_used, r_fence, began BIGINT;
  DECLARE its_weight, its_most, r_waiting INT;
  DECLARE its_several, its_silence, gone BOOLEAN;
  DECLARE fits BOOLEAN DEFAULT TRUE;
  waiters: LOOP
    SELECT token, used, GREATEST(fence, issued), waiting INTO r_token, r_used, r_fence, r_waiting FROM dibs_names WHERE name = n;
    IF r_waiting = 0 OR r_token <> '' THEN
      LEAVE waiters;
    END IF;
    CALL dibs_head(n, at, whose, its_client, its_ticket, its_ttl, its_weight, its_most, its_several, its_silence);
    IF whose IS NULL OR r_used > its_most - its_weight THEN
      LEAVE waiters;
    END IF;
    IF its_several OR its_silence THEN
      IF changed THEN
        CALL dibs_notify(its_client, CONCAT('r ', whose));
      END IF;
      LEAVE waiters;
    END IF;
    IF r_used > 0 THEN
      CALL dibs_fits(n, whose, fits);
    END IF;
    IF NOT fits THEN
      LEAVE waiters;
    END IF;
    CALL dibs_leave(n, whose, gone);
    SET began = now_us();
    SET r_fence = GREATEST(r_fence + 1, at);
    CALL dibs_hold(n, whose, its_client, its_weight, its_most, r_fence, began + its_ttl);
    CALL dibs_notify(its_client, CONCAT('g ', r_fence, ' ', its_ticket, ' ', began, ' ', whose));
    SET changed = TRUE;
  END LOOP;
END;

-- busy describes the holder of a locked name that expires first, other than the lease of a token.
-- A lease that has expired and still exists is guarded by a transaction, whose end nobody announces.
-- Without a holder a waiter comes first, which may be dead.
CREATE PROCEDURE dibs_busy(IN n VARBINARY(512), IN whose VARBINARY(512), IN at BIGINT, OUT holder VARBINARY(512), OUT kept BOOLEAN, OUT remaining BIGINT)
SQL SECURITY INVOKER
BEGIN
  DECLARE ends BIGINT;
  SET holder = '', kept = FALSE;
  SELECT token, reserved, expires INTO holder, kept, ends FROM dibs_names WHERE name = n AND token <> '';
  IF holder = '' THEN
    SELECT token, reserved, expires INTO holder, kept, ends FROM dibs_holders
    WHERE name = n AND (token <> whose OR reserved OR expires <= at) ORDER BY expires LIMIT 1;
  END IF;
  SET remaining = IF(ends <= at, 20000, ends - at);
  IF ends IS NULL THEN
    SET remaining = waiter_ttl();
    SELECT GREATEST(drop_at() - at, 0) INTO remaining FROM dibs_waiters WHERE name = n ORDER BY ticket, token LIMIT 1;
  END IF;
END;

-- has_silent reports whether one of those just before a waiter is silent. Each waiter so checks
-- some, and not all: a thousand heartbeats that each looked at the whole queue would take all the time.
CREATE PROCEDURE dibs_has_silent(IN n VARBINARY(512), IN whose VARBINARY(512), IN its_ticket BIGINT, IN at BIGINT, OUT silent BOOLEAN)
SQL SECURITY INVOKER
BEGIN
  SELECT COALESCE(MAX(is_odd() OR missed > 0 AND drop_at() <= at), FALSE) INTO silent FROM (
    SELECT heartbeat, missed FROM dibs_waiters WHERE name = n AND ticket <= its_ticket AND (ticket < its_ticket OR token < whose)
    ORDER BY ticket DESC, token DESC LIMIT 16
  ) AS before_it;
END;

-- place_of returns the position of a waiter. It counts up to 100 waiters before it.
CREATE PROCEDURE dibs_place_of(IN n VARBINARY(512), IN whose VARBINARY(512), IN its_ticket BIGINT, OUT place BIGINT)
SQL SECURITY INVOKER
BEGIN
  SELECT COUNT(*) + 1 INTO place FROM (
    SELECT 1 FROM dibs_waiters WHERE name = n AND ticket <= its_ticket AND (ticket < its_ticket OR token < whose)
    ORDER BY ticket, token LIMIT 100
  ) AS before_it;
END;

-- beat is the heartbeat of a waiter while somebody else holds the name alone. It does not lock the
-- name: with a thousand waiters, nobody else would have a turn. Its result is null, and it does nothing,
-- if more than a heartbeat may be needed. The row of the waiter decides: whoever ends the wait deletes it.
CREATE PROCEDURE dibs_beat(IN n VARBINARY(512), IN whose VARBINARY(512), IN at BIGINT,
  OUT last_fence BIGINT, OUT holder VARBINARY(512), OUT remaining BIGINT, OUT its_ticket BIGINT, OUT place BIGINT)
SQL SECURITY INVOKER
BEGIN
  DECLARE silent BOOLEAN;
  SET place = NULL;
  SELECT w.ticket, held.fence, held.token, held.expires - at INTO its_ticket, last_fence, holder, remaining
  FROM dibs_waiters w JOIN dibs_names held ON held.name = w.name
  WHERE w.name = n AND w.token = whose AND held.token NOT IN ('', whose) AND NOT held.reserved AND NOT held.asked AND held.expires > at
    AND NOT EXISTS (SELECT 1 FROM dibs_releases r WHERE r.name = n AND r.token = held.token);
  IF its_ticket IS NOT NULL THEN
    CALL dibs_has_silent(n, whose, its_ticket, at, silent);
    IF NOT silent THEN
      UPDATE dibs_waiters SET heartbeat = at, missed = 0 WHERE name = n AND token = whose AND ticket = its_ticket;
      IF ROW_COUNT() > 0 THEN
        CALL dibs_place_of(n, whose, its_ticket, place);
      END IF;
    END IF;
  END IF;
END;

-- enqueue adds a queue entry for each name, or keeps those that exist. Each is a heartbeat. A waiter
-- that lost its entry has its former place by its last ticket.
CREATE PROCEDURE dibs_enqueue(IN wanted LONGTEXT CHARACTER SET ascii, IN whose VARBINARY(512), IN its_client VARBINARY(512),
  IN its_ttl BIGINT, IN its_weight INT, IN its_most INT, IN its_ticket BIGINT, IN at BIGINT, OUT new_ticket BIGINT, OUT place BIGINT)
SQL SECURITY INVOKER
BEGIN
  DECLARE n VARBINARY(512);
  DECLARE rest LONGTEXT CHARACTER SET ascii DEFAULT wanted;
  DECLARE old_ticket, last_ticket, one_place BIGINT;
  DECLARE is_several, notifies, silent BOOLEAN;
  SET is_several = LENGTH(wanted) > LOCATE(',', wanted);
  SET old_ticket = NULL, new_ticket = at, place = 0;
  WHILE rest <> '' DO
    CALL dibs_next_name(rest, n);
    SELECT MAX(ticket) INTO last_ticket FROM dibs_waiters WHERE name = n AND token = whose;
    SET old_ticket = COALESCE(GREATEST(old_ticket, last_ticket), old_ticket, last_ticket);
    SELECT ticket INTO last_ticket FROM dibs_names WHERE name = n;
    SET new_ticket = GREATEST(new_ticket, last_ticket);
  END WHILE;
  IF old_ticket IS NULL AND its_ticket > 0 AND (its_ticket + 1) % 16 <> 0 THEN
    SET old_ticket = its_ticket + 1;
  END IF;
  SET new_ticket = COALESCE(old_ticket, (new_ticket DIV 16 + 1) * 16), rest = wanted;
  WHILE rest <> '' DO
    CALL dibs_next_name(rest, n);
    IF EXISTS (SELECT 1 FROM dibs_waiters WHERE name = n AND token = whose) THEN
      UPDATE dibs_waiters SET heartbeat = at, missed = 0 WHERE name = n AND token = whose;
    ELSE
      INSERT INTO dibs_waiters (name, token, client, weight, most, ttl, several, ticket, joined, heartbeat, missed)
      VALUES (n, whose, its_client, its_weight, its_most, LEAST(its_ttl, waiter_ttl()), is_several, new_ticket, at, at, 0);
      UPDATE dibs_names SET waiting = waiting + 1, ticket = GREATEST(ticket, new_ticket) WHERE name = n;
    END IF;
    SELECT asked INTO notifies FROM dibs_names WHERE name = n;
    IF notifies THEN
      CALL dibs_notify_wanted(n);
    END IF;
    SET silent = TRUE;
    WHILE silent DO
      CALL dibs_has_silent(n, whose, new_ticket, at, silent);
      IF silent THEN
        CALL dibs_remove_dead(n, at);
      END IF;
    END WHILE;
    CALL dibs_place_of(n, whose, new_ticket, one_place);
    SET place = GREATEST(place, one_place);
  END WHILE;
END;

-- admits serves the waiters of a locked name, and reports whether a request can be granted now,
-- or holds the name already.
CREATE PROCEDURE dibs_admits(IN n VARBINARY(512), IN whose VARBINARY(512), IN its_weight INT, IN its_most INT, IN at BIGINT,
  OUT admitted BOOLEAN, OUT last_fence BIGINT)
SQL SECURITY INVOKER
BEGIN
  DECLARE changed BOOLEAN;
  DECLARE first, its_client, r_token VARBINARY(512);
  DECLARE first_ticket, first_ttl, r_used BIGINT;
  DECLARE first_weight, first_most, r_waiting INT;
  DECLARE first_several, first_silence BOOLEAN;
  CALL dibs_expire(n, at, changed);
  CALL dibs_serve(n, at, changed);
  SELECT token, used, waiting, GREATEST(fence, issued) INTO r_token, r_used, r_waiting, last_fence FROM dibs_names WHERE name = n;
  CALL dibs_holds(n, whose, at, admitted);
  IF NOT admitted AND r_token = '' AND r_used <= its_most - its_weight THEN
    SET admitted = r_waiting = 0;
    IF NOT admitted THEN
      CALL dibs_head(n, at, first, its_client, first_ticket, first_ttl, first_weight, first_most, first_several, first_silence);
      SET admitted = COALESCE(first = whose, TRUE);
    END IF;
    IF admitted AND r_used > 0 THEN
      CALL dibs_fits(n, whose, admitted);
    END IF;
  END IF;
END;

-- grant makes a token a holder of a locked name, or extends its lease.
CREATE PROCEDURE dibs_grant(IN n VARBINARY(512), IN whose VARBINARY(512), IN its_client VARBINARY(512),
  IN its_ttl BIGINT, IN its_weight INT, IN its_most INT, IN new_fence BIGINT, IN at BIGINT)
SQL SECURITY INVOKER
BEGIN
  DECLARE held, gone BOOLEAN;
  CALL dibs_leave(n, whose, gone);
  CALL dibs_holds(n, whose, at, held);
  IF NOT held THEN
    CALL dibs_hold(n, whose, its_client, its_weight, its_most, new_fence, at + its_ttl);
  ELSE
    UPDATE dibs_names SET expires = GREATEST(expires, at + its_ttl) WHERE name = n AND token = whose AND NOT reserved;
    UPDATE dibs_holders SET expires = GREATEST(expires, at + its_ttl), fence = new_fence WHERE name = n AND token = whose AND NOT reserved;
    UPDATE dibs_names SET fence = new_fence WHERE name = n;
    CALL dibs_unguard(n, whose, gone);
    IF gone THEN
      INSERT INTO dibs_guards (name, token, fence) VALUES (n, whose, new_fence);
    END IF;
  END IF;
END;

-- acquire_free acquires a locked name that is free and for which nobody waits.
CREATE PROCEDURE dibs_acquire_free(IN n VARBINARY(512), IN whose VARBINARY(512), IN its_client VARBINARY(512),
  IN its_weight INT, IN at BIGINT, IN ends BIGINT, OUT held BOOLEAN, OUT new_fence BIGINT)
SQL SECURITY INVOKER
BEGIN
  UPDATE dibs_names SET token = whose, client = its_client, weight = its_weight, expires = ends, fence = GREATEST(fence + 1, issued + 1, at)
  WHERE name = n AND token = '' AND used = 0 AND waiting = 0;
  SET held = ROW_COUNT() > 0;
  IF held THEN
    SELECT fence INTO new_fence FROM dibs_names WHERE name = n;
    INSERT INTO dibs_guards (name, token, fence) VALUES (n, whose, new_fence);
  END IF;
END;

-- acquire_all is acquire with all names locked.
CREATE PROCEDURE dibs_acquire_all(IN wanted LONGTEXT CHARACTER SET ascii, IN whose VARBINARY(512), IN its_client VARBINARY(512),
  IN its_ttl BIGINT, IN its_weight INT, IN its_most INT, IN queue BOOLEAN, IN its_ticket BIGINT, IN until BIGINT)
SQL SECURITY INVOKER
BEGIN
  DECLARE rest LONGTEXT CHARACTER SET ascii;
  DECLARE n, busy_name, holder, one_holder VARBINARY(512);
  DECLARE at, new_fence, last_fence, remaining, one_remaining, new_ticket, place BIGINT;
  DECLARE held, admitted, kept, one_kept, ended, still BOOLEAN;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
  SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
  START TRANSACTION;
  CALL dibs_lock(wanted, until, at);
  IF at <= until AND its_weight = its_most AND LOCATE(',', wanted) = LENGTH(wanted) THEN
    CALL dibs_acquire_free(UNHEX(SUBSTRING_INDEX(wanted, ',', 1)), whose, its_client, its_weight, at, at + its_ttl, held, new_fence);
  END IF;
  IF at <= until AND NOT COALESCE(held, FALSE) THEN
    SET held = TRUE, new_fence = 0, rest = wanted;
    WHILE rest <> '' DO
      CALL dibs_next_name(rest, n);
      CALL dibs_admits(n, whose, its_weight, its_most, at, admitted, last_fence);
      SET new_fence = GREATEST(new_fence, last_fence);
      IF NOT admitted THEN
        CALL dibs_busy(n, whose, at, one_holder, one_kept, one_remaining);
        IF held OR one_remaining < remaining THEN
          SET busy_name = n, holder = one_holder, kept = one_kept, remaining = one_remaining;
        END IF;
        SET held = FALSE;
      END IF;
    END WHILE;
    IF held THEN
      SET new_fence = GREATEST(new_fence + 1, at);
    END IF;
    SET rest = wanted;
    WHILE rest <> '' DO
      CALL dibs_next_name(rest, n);
      IF held THEN
        CALL dibs_grant(n, whose, its_client, its_ttl, its_weight, its_most, new_fence, at);
      ELSE
        -- A waiter for several names holds none.
        CALL dibs_holds(n, whose, at, still);
        IF still THEN
          CALL dibs_end_lease(n, whose, FALSE, ended);
          CALL dibs_serve(n, at, ended);
          SELECT GREATEST(new_fence, fence) INTO new_fence FROM dibs_names WHERE name = n;
        END IF;
      END IF;
    END WHILE;
    IF NOT held AND queue THEN
      CALL dibs_enqueue(wanted, whose, its_client, its_ttl, its_weight, its_most, its_ticket, at, new_ticket, place);
    END IF;
  END IF;
  COMMIT;
  SELECT at, held, new_fence, busy_name, holder, kept, remaining, new_ticket, place;
END;

-- acquire acquires all wanted names or none. Without room, it adds a queue entry to each if
-- queue is set, and no earlier grant has a larger fence than new_fence. A null held means that the
-- request came after its time.
CREATE PROCEDURE dibs_acquire(IN wanted LONGTEXT CHARACTER SET ascii, IN whose VARBINARY(512), IN its_client VARBINARY(512),
  IN its_ttl BIGINT, IN its_weight INT, IN its_most INT, IN queue BOOLEAN, IN its_ticket BIGINT, IN until BIGINT)
SQL SECURITY INVOKER
BEGIN
  DECLARE n, holder VARBINARY(512);
  DECLARE at, new_fence, remaining, new_ticket, place BIGINT;
  SET at = now_us();
  IF at <= until AND queue AND its_ticket > 0 AND LOCATE(',', wanted) = LENGTH(wanted) THEN
    SET n = UNHEX(SUBSTRING_INDEX(wanted, ',', 1));
    CALL dibs_beat(n, whose, at, new_fence, holder, remaining, new_ticket, place);
  END IF;
  IF place IS NULL THEN
    CALL dibs_acquire_all(wanted, whose, its_client, its_ttl, its_weight, its_most, queue, its_ticket, until);
  ELSE
    SELECT at, FALSE AS held, new_fence, n AS busy_name, holder, FALSE AS kept, remaining, new_ticket, place;
  END IF;
END;

-- release_alone ends an exclusive lease if nobody waits for the locked name and no transaction
-- guards the lease.
CREATE PROCEDURE dibs_release_alone(IN n VARBINARY(512), IN whose VARBINARY(512), IN at BIGINT, OUT held BOOLEAN)
SQL SECURITY INVOKER
BEGIN
  SELECT COUNT(*) INTO held FROM dibs_names WHERE name = n AND token = whose AND NOT reserved AND waiting = 0 AND expires > at;
  IF held THEN
    CALL dibs_unguard(n, whose, held);
  END IF;
  IF held THEN
    UPDATE dibs_names SET token = '', client = '', asked = FALSE WHERE name = n;
  END IF;
END;

-- release ends a lease, or keeps its name unavailable for some time. With unreserve it ends what
-- an earlier release has reserved. A null held means that the request came after its time.
CREATE PROCEDURE dibs_release(IN wanted LONGTEXT CHARACTER SET ascii, IN whose VARBINARY(512), IN reserve BIGINT, IN unreserve BOOLEAN, IN until BIGINT)
SQL SECURITY INVOKER
BEGIN
  DECLARE n VARBINARY(512) DEFAULT UNHEX(SUBSTRING_INDEX(wanted, ',', 1));
  DECLARE at BIGINT;
  DECLARE held, changed, ended BOOLEAN;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
  SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
  START TRANSACTION;
  CALL dibs_lock(wanted, until, at);
  IF at <= until AND reserve = 0 AND NOT unreserve THEN
    CALL dibs_release_alone(n, whose, at, held);
  END IF;
  IF at <= until AND NOT COALESCE(held, FALSE) THEN
    CALL dibs_expire(n, at, changed);
    IF unreserve THEN
      SELECT EXISTS (SELECT 1 FROM dibs_names WHERE name = n AND token = whose AND reserved AND expires > at)
        OR EXISTS (SELECT 1 FROM dibs_holders WHERE name = n AND token = whose AND reserved AND expires > at)
      INTO held;
    ELSE
      CALL dibs_holds(n, whose, at, held);
    END IF;
    IF held AND NOT unreserve AND reserve > 0 THEN
      CALL dibs_reserve(n, whose, at + reserve, at);
    ELSEIF held THEN
      CALL dibs_end_lease(n, whose, unreserve, ended);
      SET changed = changed OR ended;
    END IF;
    CALL dibs_serve(n, at, changed);
  END IF;
  COMMIT;
  SELECT at, held;
END;

-- cancel ends the leases and queue entries of a token.
CREATE PROCEDURE dibs_cancel(IN wanted LONGTEXT CHARACTER SET ascii, IN whose VARBINARY(512), IN until BIGINT)
SQL SECURITY INVOKER
BEGIN
  DECLARE rest LONGTEXT CHARACTER SET ascii DEFAULT wanted;
  DECLARE n VARBINARY(512);
  DECLARE at BIGINT;
  DECLARE done, changed, ended, gone BOOLEAN;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
  SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
  START TRANSACTION;
  CALL dibs_lock(wanted, until, at);
  IF at <= until THEN
    SET done = TRUE;
    WHILE rest <> '' DO
      CALL dibs_next_name(rest, n);
      CALL dibs_expire(n, at, changed);
      CALL dibs_end_lease(n, whose, FALSE, ended);
      CALL dibs_leave(n, whose, gone);
      CALL dibs_serve(n, at, changed OR ended OR gone);
    END WHILE;
  END IF;
  COMMIT;
  SELECT at, done;
END;

-- resize changes the weight of a lease if it fits beside the other holders. A null held means
-- that the request came after its time.
CREATE PROCEDURE dibs_resize(IN wanted LONGTEXT CHARACTER SET ascii, IN whose VARBINARY(512), IN its_client VARBINARY(512),
  IN its_ttl BIGINT, IN its_weight INT, IN its_most INT, IN until BIGINT)
SQL SECURITY INVOKER
BEGIN
  DECLARE n, holder VARBINARY(512);
  DECLARE at, new_fence, remaining, old_expires, old_weight, r_used BIGINT;
  DECLARE held, kept, changed, ended, was_asked BOOLEAN;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
  SET n = UNHEX(SUBSTRING_INDEX(wanted, ',', 1));
  SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
  START TRANSACTION;
  CALL dibs_lock(wanted, until, at);
  IF at <= until THEN
    CALL dibs_expire(n, at, changed);
    CALL dibs_holds(n, whose, at, held);
    SELECT used, GREATEST(fence, issued) INTO r_used, new_fence FROM dibs_names WHERE name = n;
    IF held THEN
      -- An exclusive holder was alone.
      SELECT COALESCE(MAX(weight), 0), MAX(expires), MAX(asked) INTO old_weight, old_expires, was_asked
      FROM dibs_holders WHERE name = n AND token = whose AND NOT reserved;
      IF old_expires IS NULL THEN
        SELECT expires, asked INTO old_expires, was_asked FROM dibs_names WHERE name = n;
      END IF;
      SET held = r_used - old_weight <= its_most - its_weight;
    END IF;
    IF held THEN
      CALL dibs_end_lease(n, whose, FALSE, ended);
      IF NOT ended THEN
        SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = 31234, MESSAGE_TEXT = 'a transaction guards the lease';
      END IF;
      SET new_fence = GREATEST(new_fence + 1, at);
      CALL dibs_hold(n, whose, its_client, its_weight, its_most, new_fence, GREATEST(old_expires, at + its_ttl));
      IF was_asked THEN
        UPDATE dibs_names SET asked = TRUE WHERE name = n;
        UPDATE dibs_holders SET asked = TRUE WHERE name = n AND token = whose;
      END IF;
      SET changed = TRUE;
    ELSE
      SET new_fence = NULL;
      CALL dibs_busy(n, whose, at, holder, kept, remaining);
    END IF;
    CALL dibs_serve(n, at, changed);
  END IF;
  COMMIT;
  SELECT at, held, new_fence, n, holder, kept, remaining, NULL, NULL;
END;

-- reserve_fences reserves further fences for the exclusive holder of a name, and returns the last
-- one. A null held means that the request came after its time.
CREATE PROCEDURE dibs_reserve_fences(IN wanted LONGTEXT CHARACTER SET ascii, IN whose VARBINARY(512), IN how_many BIGINT, IN at_least BIGINT, IN until BIGINT)
SQL SECURITY INVOKER
BEGIN
  DECLARE n VARBINARY(512) DEFAULT UNHEX(SUBSTRING_INDEX(wanted, ',', 1));
  DECLARE at, last_fence BIGINT;
  DECLARE held BOOLEAN;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
  SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
  START TRANSACTION;
  CALL dibs_lock(wanted, until, at);
  IF at <= until THEN
    SELECT COUNT(*), MAX(GREATEST(GREATEST(fence, issued) + how_many, at_least)) INTO held, last_fence
    FROM dibs_names WHERE name = n AND token = whose AND NOT reserved AND expires > at;
    IF held THEN
      UPDATE dibs_names SET issued = last_fence WHERE name = n;
    END IF;
  END IF;
  COMMIT;
  SELECT at, held, last_fence;
END;

-- wanted has a client notified of the first waiter for a name that its token holds. If a request
-- waits already, and is not silent, it reports that instead. A null wanted means that the request came after its time.
CREATE PROCEDURE dibs_wanted(IN names LONGTEXT CHARACTER SET ascii, IN whose VARBINARY(512), IN its_client VARBINARY(512), IN until BIGINT)
SQL SECURITY INVOKER
BEGIN
  DECLARE n VARBINARY(512) DEFAULT UNHEX(SUBSTRING_INDEX(names, ',', 1));
  DECLARE at BIGINT;
  DECLARE changed, held, wanted BOOLEAN;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
  SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
  START TRANSACTION;
  CALL dibs_lock(names, until, at);
  IF at <= until THEN
    CALL dibs_expire(n, at, changed);
    CALL dibs_serve(n, at, changed);
    CALL dibs_holds(n, whose, at, held);
    SET wanted = FALSE;
    IF held THEN
      CALL dibs_remove_dead(n, at);
      SELECT EXISTS (SELECT 1 FROM dibs_waiters WHERE name = n AND heartbeat + waiter_ttl() > at) INTO wanted;
    END IF;
    IF held AND NOT wanted THEN
      UPDATE dibs_names SET asked = TRUE, client = IF(token = whose, its_client, client) WHERE name = n;
      UPDATE dibs_holders SET asked = TRUE, client = its_client WHERE name = n AND token = whose AND NOT reserved;
    END IF;
  END IF;
  COMMIT;
  SELECT at, wanted;
END;

-- revoke ends the lease with a fence, and sends the reason to its holder.
CREATE PROCEDURE dibs_revoke(IN wanted LONGTEXT CHARACTER SET ascii, IN its_fence BIGINT, IN reason VARBINARY(512), IN until BIGINT)
SQL SECURITY INVOKER
BEGIN
  DECLARE n, whose, its_client VARBINARY(512);
  DECLARE at BIGINT;
  DECLARE revoked, kept, changed, ended BOOLEAN;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
  SET n = UNHEX(SUBSTRING_INDEX(wanted, ',', 1));
  SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
  START TRANSACTION;
  CALL dibs_lock(wanted, until, at);
  IF at <= until THEN
    CALL dibs_expire(n, at, changed);
    SELECT token, client, reserved INTO whose, its_client, kept
    FROM dibs_names WHERE name = n AND token <> '' AND fence = its_fence AND expires > at;
    IF whose IS NULL THEN
      SELECT token, client, reserved INTO whose, its_client, kept
      FROM dibs_holders WHERE name = n AND fence = its_fence AND expires > at LIMIT 1;
    END IF;
    SET revoked = whose IS NOT NULL;
    IF revoked THEN
      CALL dibs_end_lease(n, whose, kept, ended);
      SET changed = changed OR ended;
      IF NOT kept THEN
        CALL dibs_notify(its_client, CONCAT('x ', its_fence, ' ', reason, CHAR(10), whose));
      END IF;
    END IF;
    CALL dibs_serve(n, at, changed);
  END IF;
  COMMIT;
  SELECT at, revoked;
END;

-- extend raises the remaining time of each lease of a list. It returns the numbers of those that
-- are held until then at least.
CREATE PROCEDURE dibs_extend(IN leases LONGTEXT CHARACTER SET ascii)
SQL SECURITY INVOKER
BEGIN
  DECLARE at BIGINT;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
  SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
  START TRANSACTION;
  SET at = now_us();
  UPDATE list_of(leases) AS l STRAIGHT_JOIN dibs_names h
  ON h.name = UNHEX(l.name) AND h.token = UNHEX(l.token) AND NOT h.reserved AND h.expires > at
  SET h.expires = GREATEST(h.expires, at + l.ttl), h.client = COALESCE(NULLIF(UNHEX(l.client), ''), h.client);
  UPDATE list_of(leases) AS l STRAIGHT_JOIN dibs_holders h
  ON h.name = UNHEX(l.name) AND h.token = UNHEX(l.token) AND h.reserved = FALSE AND h.expires > at
  SET h.expires = GREATEST(h.expires, at + l.ttl), h.client = COALESCE(NULLIF(UNHEX(l.client), ''), h.client);
  COMMIT;
  SELECT l.i FROM list_of(leases) AS l STRAIGHT_JOIN dibs_names h
  ON h.name = UNHEX(l.name) AND h.token = UNHEX(l.token) AND NOT h.reserved AND h.expires >= at + l.ttl
  UNION ALL
  SELECT l.i FROM list_of(leases) AS l STRAIGHT_JOIN dibs_holders h
  ON h.name = UNHEX(l.name) AND h.token = UNHEX(l.token) AND h.reserved = FALSE AND h.expires >= at + l.ttl;
END;

-- remove_unused looks at the next names, and removes those that nobody has used since a time. It
-- reports whether there are more names. Only one session does this at a time.
CREATE PROCEDURE dibs_remove_unused(IN number INT, IN since BIGINT)
SQL SECURITY INVOKER
BEGIN
  DECLARE n VARBINARY(512);
  DECLARE at, last_fence, last_ticket BIGINT;
  DECLARE changed, found, more BOOLEAN;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
  SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
  START TRANSACTION;
  SELECT looked INTO n FROM dibs_removed WHERE id = 1 FOR UPDATE SKIP LOCKED;
  SET more = n IS NULL;
  sweep: WHILE number > 0 AND NOT more DO
    SET number = number - 1;
    SELECT MIN(name) INTO n FROM dibs_names WHERE name > n;
    IF n IS NULL THEN
      LEAVE sweep;
    END IF;
    SELECT COUNT(*) INTO found FROM dibs_names WHERE name = n FOR UPDATE SKIP LOCKED;
    IF found THEN
      -- Holders and waiters that have died, if nobody has asked for the name since.
      SET at = now_us();
      CALL dibs_expire(n, at, changed);
      CALL dibs_serve(n, at, changed);
      CALL dibs_remove_dead(n, at);
      SET last_fence = NULL;
      SELECT GREATEST(fence, issued), ticket INTO last_fence, last_ticket FROM dibs_names
      WHERE name = n AND waiting = 0 AND used = 0 AND token = '' AND fence < since;
      IF last_fence IS NOT NULL THEN
        UPDATE dibs_removed SET fence = GREATEST(fence, last_fence), ticket = GREATEST(ticket, last_ticket) WHERE id = 1;
        DELETE FROM dibs_names WHERE name = n;
      END IF;
    END IF;
  END WHILE;
  IF NOT more THEN
    UPDATE dibs_removed SET looked = COALESCE(n, '') WHERE id = 1;
    SET more = n IS NOT NULL;
  END IF;
  COMMIT;
  DELETE FROM dibs_messages WHERE sent < since LIMIT 1000;
  SELECT more;
END;
