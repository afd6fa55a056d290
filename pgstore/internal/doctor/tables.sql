-- Returns the tables of a schema, and which rights the user lacks.
SELECT c.relname::text, has_schema_privilege(n.oid, 'USAGE'),
concat_ws(', ', CASE WHEN NOT has_table_privilege(c.oid, 'SELECT') THEN 'SELECT' END,
  CASE WHEN NOT has_table_privilege(c.oid, 'INSERT') THEN 'INSERT' END,
  CASE WHEN NOT has_table_privilege(c.oid, 'UPDATE') THEN 'UPDATE' END,
  CASE WHEN NOT has_table_privilege(c.oid, 'DELETE') THEN 'DELETE' END)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relkind IN ('r', 'p')
