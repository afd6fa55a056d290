package foreign

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sort"
)

type File interface {
	io.ReadWriteCloser
	fmt.Stringer
	error
	sort.Interface
	http.RoundTripper
	//dibs:write "file:"+name
	Save(ctx context.Context, name string, from io.Reader) (n int64, err error)
}
