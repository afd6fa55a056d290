// Command dibs holds locks for shells, cron and operators: dibs run NAME -- COMMAND.
package main

import (
	"os"

	"github.com/dibslock/dibs/cmd/dibs/internal/supervise"
)

func main() {
	con := &console{in: os.Stdin, out: os.Stdout, err: os.Stderr, env: os.Environ()}
	os.Exit(newApp(con, supervise.CatchSignals()).run(os.Args[1:]))
}
