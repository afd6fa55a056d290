package standard

import "context"

type Shop interface {
	//dibs:lock "order:"+strconv.Itoa(id)
	Pay(ctx context.Context, id int) error
	//dibs:lock strings.ToLower(strconv)
	Show(ctx context.Context, strconv string) error
}
