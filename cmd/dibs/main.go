// Command dibs holds locks for shells, cron and operators: dibs run NAME -- COMMAND.
package main

import (
	"os"
	"syscall"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == watchdogArg {
		// syscall.Exit ends the process at once: it runs no exit hooks.
		syscall.Exit(runWatchdog(os.Args[2:]))
	}
	a := &app{
		in: os.Stdin, out: os.Stdout, err: os.Stderr,
		getenv: os.Getenv, environ: os.Environ(),
	}
	os.Exit(a.run(os.Args[1:]))
}
