package foreign

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"sort"
)

type File interface {
	io.ReadWriteCloser
	fmt.Stringer
	error
	sort.Interface
	fs.DirEntry
	//dibs:write "file:"+name
	Save(ctx context.Context, name string, from io.Reader) (n int64, err error)
}
