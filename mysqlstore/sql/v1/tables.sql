-- Times and TTLs are µs, times since 1970 by the clock of the server. Tickets and fences
-- are times, or more than the last one if the clock has not advanced.

-- The versions that were created. It is the first table: so if another table exists without it, that
-- one is of another program.
CREATE TABLE dibs_versions (
  version INT       NOT NULL PRIMARY KEY,
  created TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP
) ENGINE = InnoDB;

CREATE TABLE dibs_names (
  name     VARBINARY(512) NOT NULL PRIMARY KEY,
  fence    BIGINT         NOT NULL DEFAULT 0,      -- of the last grant
  issued   BIGINT         NOT NULL DEFAULT 0,      -- the last fence that was reserved for a holder: later grants have larger ones
  ticket   BIGINT         NOT NULL DEFAULT 0,      -- of the last queue entry
  token    VARBINARY(512) NOT NULL DEFAULT '',     -- of the exclusive holder; or empty
  client   VARBINARY(512) NOT NULL DEFAULT '',     -- of that holder
  weight   INT            NOT NULL DEFAULT 1,      -- of that holder
  expires  BIGINT         NOT NULL DEFAULT 0,      -- of that holder
  reserved BOOLEAN        NOT NULL DEFAULT FALSE,  -- that holder has released its lease
  asked    BOOLEAN        NOT NULL DEFAULT FALSE,  -- a holder is to be notified of the next heartbeat of a waiter; only while none is heard
  used     BIGINT         NOT NULL DEFAULT 0,      -- sum of the weights in dibs_holders
  waiting  INT            NOT NULL DEFAULT 0       -- number of rows in dibs_waiters
) ENGINE = InnoDB;

-- The holders of shares. A name has holders here, or an exclusive one, or none.
CREATE TABLE dibs_holders (
  name     VARBINARY(512) NOT NULL,
  token    VARBINARY(512) NOT NULL,
  reserved BOOLEAN        NOT NULL DEFAULT FALSE,
  client   VARBINARY(512) NOT NULL,
  weight   INT            NOT NULL,
  fence    BIGINT         NOT NULL,
  expires  BIGINT         NOT NULL,
  asked    BOOLEAN        NOT NULL DEFAULT FALSE,  -- the holder is to be notified of the first waiter
  PRIMARY KEY (name, token, reserved),
  KEY expires (name, expires)
) ENGINE = InnoDB;

-- One row for each lease, which nothing changes: a guard locks it, and delays only the
-- end of the lease.
CREATE TABLE dibs_guards (
  name  VARBINARY(512) NOT NULL,
  token VARBINARY(512) NOT NULL,
  fence BIGINT         NOT NULL,  -- of a grant to the lease: a guard with a smaller one is of an earlier lease
  PRIMARY KEY (name, token)
) ENGINE = InnoDB;

-- The leases that a committed transaction has released: whoever next locks the name ends them. A lease
-- that ends otherwise loses its row here.
CREATE TABLE dibs_releases (
  name  VARBINARY(512) NOT NULL,
  token VARBINARY(512) NOT NULL,
  until BIGINT         NOT NULL,  -- until then the name is reserved; or 0
  PRIMARY KEY (name, token)
) ENGINE = InnoDB;

-- The wait queues. A request for several names has an entry in each queue, with one ticket.
CREATE TABLE dibs_waiters (
  name      VARBINARY(512) NOT NULL,
  token     VARBINARY(512) NOT NULL,
  client    VARBINARY(512) NOT NULL,
  weight    INT            NOT NULL,
  most      INT            NOT NULL,  -- the limit of the request
  ttl       BIGINT         NOT NULL,  -- of a lease that a hand-off grants
  several   BOOLEAN        NOT NULL,  -- the request has several names: it retries, and gets no hand-off
  ticket    BIGINT         NOT NULL,
  joined    BIGINT         NOT NULL,
  heartbeat BIGINT         NOT NULL,
  missed    BIGINT         NOT NULL,  -- when a request first found the next heartbeat missing; or 0
  PRIMARY KEY (name, token),
  KEY in_order (name, ticket, token)
) ENGINE = InnoDB;

-- Notifications, which the clients fetch.
CREATE TABLE dibs_messages (
  id      BIGINT          NOT NULL AUTO_INCREMENT PRIMARY KEY,
  client  VARBINARY(512)  NOT NULL,
  sent    BIGINT          NOT NULL,
  message VARBINARY(2048) NOT NULL,
  KEY client (client),
  KEY sent (sent)
) ENGINE = InnoDB;

-- One row: the largest fence and ticket of the names that were removed because nobody used them,
-- and the name after which the next removal begins.
CREATE TABLE dibs_removed (
  id     INT            NOT NULL PRIMARY KEY,
  fence  BIGINT         NOT NULL,
  ticket BIGINT         NOT NULL,
  looked VARBINARY(512) NOT NULL
) ENGINE = InnoDB;

INSERT IGNORE INTO dibs_removed (id, fence, ticket, looked) VALUES (1, 0, 0, '');
