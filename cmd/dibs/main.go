// Command dibs holds locks for shells, cron and operators: dibs run NAME -- COMMAND.
package main

import (
	"os"
	"syscall"

	"github.com/dibslock/dibs/cmd/dibs/internal/supervise"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == supervise.WatchdogArg {
		// syscall.Exit ends the process at once: it runs no exit hooks.
		syscall.Exit(supervise.RunWatchdog(os.Args[2:]))
	}
	con := &console{in: os.Stdin, out: os.Stdout, err: os.Stderr, env: os.Environ()}
	os.Exit(newApp(con, supervise.CatchSignals()).run(os.Args[1:]))
}
