-- The tables of the baselines. None of them is a usable lock.
CREATE TABLE bare_locks (name text PRIMARY KEY, token text NOT NULL, expires timestamptz NOT NULL);

-- The wait queue of baseline-notify. Its first element is the holder.
CREATE TABLE bare_queues (name text PRIMARY KEY, queue text[] NOT NULL);

-- The row that the measurement of a commit updates.
CREATE TABLE bare_commit (number bigint NOT NULL);

INSERT INTO bare_commit VALUES (0);
