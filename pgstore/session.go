package pgstore

// unsuitable are settings of a session that differ from those of an installed server. With them
// requests are cancelled, connections end, or statements have slow plans and are compiled each time.
const unsuitable = `FROM pg_settings WHERE setting <> boot_val AND (name LIKE 'enable\_%' OR name IN
	('statement_timeout', 'lock_timeout', 'transaction_timeout', 'idle_session_timeout', 'plan_cache_mode', 'jit_above_cost'))`

const notCompiled = "SET JIT = off"

const isUnsuitable = "SELECT EXISTS (SELECT " + unsuitable + ")"

// makeSuitable changes the settings of a connection of the store, in one round trip. Behind a pooler
// the session belongs to others, too.
const makeSuitable = "SET statement_timeout = 0; " + notCompiled + "; SELECT set_config(name, boot_val, false) " + unsuitable + "; "
