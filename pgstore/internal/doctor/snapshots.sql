-- The transaction whose snapshot is the oldest: it keeps old versions of rows.
SELECT age, what FROM (
  SELECT extract(epoch FROM clock_timestamp() - xact_start)::int AS age,
    'the transaction of pid ' || pid || ', ' || coalesce(state, 'state unknown') AS what
  FROM pg_stat_activity WHERE backend_xmin IS NOT NULL AND xact_start IS NOT NULL AND pid <> pg_backend_pid() -- others are hidden from this user
  UNION ALL
  SELECT extract(epoch FROM clock_timestamp() - prepared)::int, 'the prepared transaction ' || quote_literal(gid) FROM pg_prepared_xacts
) AS t ORDER BY age DESC LIMIT 1
