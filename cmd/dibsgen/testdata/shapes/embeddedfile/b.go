package embeddedfile

import (
	"context"
	convert "strconv"
)

type Payer interface {
	//dibs:lock "order:"+convert.Itoa(id)
	Pay(ctx context.Context, id int) error
}

var zero = convert.Itoa(0)
