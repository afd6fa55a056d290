//go:build unix && !linux

package main

import "syscall"

func attributes() *syscall.SysProcAttr { return new(syscall.SysProcAttr) }

// working reports whether a process group has a member.
func working(group int) bool { return syscall.Kill(-group, 0) != syscall.ESRCH }
