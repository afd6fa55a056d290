package main

import (
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// signalName returns the name of a signal without SIG: TERM for SIGTERM.
func signalName(s syscall.Signal) string { return strings.TrimPrefix(unix.SignalName(s), "SIG") }

// signalNumber returns the signal of a name, with or without SIG, or zero.
func signalNumber(name string) syscall.Signal {
	return unix.SignalNum("SIG" + strings.TrimPrefix(strings.ToUpper(name), "SIG"))
}
