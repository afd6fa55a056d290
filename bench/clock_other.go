//go:build !(linux || darwin || freebsd || netbsd || openbsd)

package main

import "time"

// now returns the wall clock, which all processes on this machine share.
func now() time.Duration { return time.Duration(time.Now().UnixNano()) }

// cpu returns 0: the CPU time is unknown on this system.
func cpu() time.Duration { return 0 }
