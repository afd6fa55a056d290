package dotimport

import (
	. "context"
	. "strconv"
)

type Shop interface {
	//dibs:lock "order:" + Itoa(id)
	Pay(ctx Context, id int) (*NumError, error)
}
