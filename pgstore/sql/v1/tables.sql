-- Times and TTLs are microseconds, times since 1970 by the clock of the server. Tickets and fences
-- are times, or more than the last one if the clock has not advanced.

CREATE TABLE dibs.names (
  name     text    COLLATE "C" PRIMARY KEY,
  fence    bigint  NOT NULL DEFAULT 0,      -- of the last grant
  issued   bigint  NOT NULL DEFAULT 0,      -- the last fence that was reserved for a holder: later grants have larger ones
  ticket   bigint  NOT NULL DEFAULT 0,      -- of the last queue entry
  token    text    NOT NULL DEFAULT '',     -- of the exclusive holder; or empty
  client   text    NOT NULL DEFAULT '',     -- of that holder
  weight   integer NOT NULL DEFAULT 1,      -- of that holder
  expires  bigint  NOT NULL DEFAULT 0,      -- of that holder
  reserved boolean NOT NULL DEFAULT false,  -- that holder has released its lease
  asked    boolean NOT NULL DEFAULT false,  -- a holder is to be notified of the next heartbeat of a waiter; only while none is heard
  used     bigint  NOT NULL DEFAULT 0,      -- sum of the weights in dibs.holders
  waiting  integer NOT NULL DEFAULT 0       -- number of rows in dibs.waiters
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05);

-- The holders of shares. A name has holders here, or an exclusive one, or none.
CREATE TABLE dibs.holders (
  name     text    COLLATE "C",
  token    text    COLLATE "C",
  reserved boolean DEFAULT false,
  client   text    NOT NULL,
  weight   integer NOT NULL,
  fence    bigint  NOT NULL,
  expires  bigint  NOT NULL,
  asked    boolean NOT NULL DEFAULT false,  -- the holder is to be notified of the first waiter
  PRIMARY KEY (name, token, reserved)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);

CREATE INDEX holders_expires ON dibs.holders (name, expires);

-- The wait queues. A request for several names has an entry in each queue, with one ticket.
CREATE TABLE dibs.waiters (
  name      text    COLLATE "C",
  token     text    COLLATE "C",
  client    text    NOT NULL,
  weight    integer NOT NULL,
  most      integer NOT NULL,  -- the limit of the request
  ttl       bigint  NOT NULL,  -- of a lease that a hand-off grants
  several   boolean NOT NULL,  -- the request has several names: it retries, and gets no hand-off
  ticket    bigint  NOT NULL,
  joined    bigint  NOT NULL,
  heartbeat bigint  NOT NULL,
  missed    bigint  NOT NULL,  -- when a request first found the next heartbeat missing; or 0
  PRIMARY KEY (name, token)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);

CREATE INDEX waiters_order ON dibs.waiters (name, ticket, token);

-- One row: the largest fence and ticket of the names that were removed because nobody used them,
-- and the name after which the next removal begins.
CREATE TABLE dibs.removed (
  fence  bigint NOT NULL,
  ticket bigint NOT NULL,
  after  text   COLLATE "C" NOT NULL
);

INSERT INTO dibs.removed (fence, ticket, after) VALUES (0, 0, '');

-- Leases that end when the transaction commits that has inserted them. No row stays.
CREATE TABLE dibs.releases (
  name     text   COLLATE "C" NOT NULL,
  token    text   COLLATE "C" NOT NULL,
  reserved bigint NOT NULL  -- the name stays unavailable until then
);

-- A guard inserts a row to see whether the transaction has a savepoint. No row stays.
CREATE UNLOGGED TABLE dibs.levels (new boolean) WITH (autovacuum_vacuum_scale_factor = 0.05);

-- The versions that were created, each by one migration.
CREATE TABLE dibs.versions (
  version integer     PRIMARY KEY,
  created timestamptz NOT NULL DEFAULT now()
);
