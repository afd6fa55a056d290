package pgstore

// A dialect is PostgreSQL's sqlstore.Dialect: all texts are ASCII.
type dialect struct{}

func (dialect) Name(name string) any          { return toText(name) }
func (dialect) Names(names []string) any      { return toTexts(names) }
func (dialect) Ordered(names []string) any    { return toTexts(names) }
func (dialect) Text(text string) any          { return toText(text) }
func (dialect) Key(text string) any           { return toText(text) }
func (dialect) Pair(name, token string) []any { return []any{toText(name), toText(token)} }
func (dialect) Decode(text string) string     { return fromText(text) }
func (dialect) Repeatable(err error) bool     { return repeatable(err) }

func (dialect) Unavailable(op, name string, err error) error { return unavailable(op, name, err) }
