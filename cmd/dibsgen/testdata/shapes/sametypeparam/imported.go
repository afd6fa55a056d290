package sametypeparam

import err "context"

// Imported has results without names, and an import with the name that they would get.
type Imported interface {
	//dibs:lock "a"
	Get(ctx err.Context, id int) (int, string, error)
}
