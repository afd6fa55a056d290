package expressions

import (
	"context"
	"fmt"
	"strings"
)

type ID [2]string

func (i ID) String() string { return strings.Join(i[:], ":") }

type Key struct{ Shop, Order, path, fmt string }

func (k Key) Name() string { return k.Shop + ":" + k.Order }

func join[T any](parts ...T) string { return fmt.Sprint(parts) }

type Shop interface {
	//dibs:lock id.String()
	Method(ctx context.Context, id ID) error
	//dibs:lock fmt.Sprintf("order:%08d wait=3s", n) wait=3s
	Call(ctx context.Context, n int) error
	//dibs:lock Key{Shop: shop, Order: order, path: "", fmt: ""}.Name()
	Literal(ctx context.Context, shop, order string) error
	//dibs:lock parts[0] + parts[len(parts)-1][1:2]
	Index(ctx context.Context, parts []string) error
	//dibs:lock map[bool]string{true: "yes", false: "no"}[ok]
	Map(ctx context.Context, ok bool) error
	//dibs:lock join[int](1, n)
	Generic(ctx context.Context, n int) error
	//dibs:lock value.(fmt.Stringer).String()
	Assertion(ctx context.Context, value any) error
	//dibs:lock *name
	Pointer(ctx context.Context, name *string) error
	//dibs:lock (`raw "string"` + string(r))
	Raw(ctx context.Context, r rune) error
	//dibs:lock tenant(ctx) /* of the request */ + ":orders"
	Context(ctx context.Context) error
}

func tenant(context.Context) string { return "" }
