package pgstore

// unsuitable lists session settings different from an installed server's. With them requests are
// cancelled, connections end, or statements have slow plans and are compiled each time.
const unsuitable = `FROM pg_settings WHERE setting <> boot_val AND (name LIKE 'enable\_%' OR name IN
	('statement_timeout', 'lock_timeout', 'transaction_timeout', 'idle_session_timeout', 'plan_cache_mode', 'jit_above_cost'))`

const notCompiled = "SET JIT = off"

const isUnsuitable = "SELECT EXISTS (SELECT " + unsuitable + ")"

// makeSuitable changes settings on a store's connection, in a single round trip. Behind a pooler,
// others share the session.
const makeSuitable = "SET statement_timeout = 0; " + notCompiled + "; SELECT set_config(name, boot_val, false) " + unsuitable + "; "
