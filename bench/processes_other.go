//go:build !(linux || darwin || freebsd || netbsd || openbsd)

package main

import "errors"

var errNoSignals = errors.New("processes cannot be stopped on this system")

func pause(int) error { return errNoSignals }

func resume(int) error { return errNoSignals }
