package imports

import (
	"context"
	"io"
	mathrand "math/rand"
	text "strings"
	"unicode"

	locks "github.com/dibslock/dibs"
)

type Shop interface {
	//dibs:lock text.ToLower(name)+strconv.Itoa(n)
	Pay(ctx context.Context, name string, n int, source *mathrand.Rand) (unicode.CaseRange, error)
	Get(key locks.Option, r io.Reader) (*text.Builder, error)
}
