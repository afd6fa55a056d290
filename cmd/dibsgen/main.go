// Command dibsgen generates decorators: types with an interface's methods, which run under
// the locks declared by directives above the methods. For shop.go with
//
//	type Shop interface {
//		//dibs:lock "order:"+o.ID wait=3s
//		Pay(ctx context.Context, o Order) (Receipt, error)
//	}
//
// it writes shop.dibs.go with the function LockShop. The help, dibsgen -h, lists directives,
// flags and exit codes.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
)

const help = `Dibsgen generates decorators that hold the locks of directives.

    dibsgen [flags] [packages]

In a package, write the directives above the methods of an interface, and once:

    //go:generate go tool dibsgen

    type Shop interface {
        //dibs:lock "order:"+o.ID wait=3s
        Pay(ctx context.Context, o Order) (Receipt, error)
    }

For shop.go it writes shop.dibs.go, with

    func LockShop(locks *dibs.Client, next Shop, options ...dibs.Option) Shop

Directives:

    //dibs:lock NAME[, NAME...] [OPTIONS]   hold a mutex, or several names
    //dibs:lock NAMES... [OPTIONS]          the same with a []string
    //dibs:read NAME [OPTIONS]              hold a read-write mutex for reading
    //dibs:write NAME [OPTIONS]             hold it for writing
    //dibs:permits NAME N [OPTIONS]         hold one of N permits of a semaphore
    //dibs:once NAME INTERVAL [OPTIONS]     run at most once per interval

NAME is a Go expression with the parameters of the method. OPTIONS are those of
dibs.ParseOptions, such as wait=3s ttl=20s.

Flags:

    -check       write nothing; print which files are stale
    -tags list   build tags, separated by commas
    -h           print this help

Exit codes:

    0   the files are up to date
    1   -check has found stale files
    2   a directive is wrong, or a package or file cannot be used; nothing was
        written because of a wrong directive
    64  invalid command line
`

// The exit codes.
const (
	exitStale   = 1
	exitProblem = 2
	exitUsage   = 64
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	code := run(ctx, ".", os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run runs the command in a directory, and returns its exit code.
func run(ctx context.Context, dir string, args []string, stdout, stderr io.Writer) int {
	c := command{dir: dir, stdout: stdout, stderr: stderr}
	flags := flag.NewFlagSet("dibsgen", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // the errors are printed below
	flags.BoolVar(&c.check, "check", false, "")
	flags.StringVar(&c.tags, "tags", "", "")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(stdout, help)
		return 0
	case err != nil:
		fmt.Fprintf(stderr, "dibsgen: %v; see dibsgen -h\n", err)
		return exitUsage
	}
	patterns := flags.Args()
	if len(patterns) == 0 {
		patterns = []string{"."}
	}
	switch err := c.generate(ctx, patterns); {
	case errors.Is(err, errStale):
		return exitStale
	case errors.Is(err, errProblems):
		return exitProblem
	case err != nil:
		fmt.Fprintf(stderr, "dibsgen: %v\n", err)
		return exitProblem
	}
	return 0
}
