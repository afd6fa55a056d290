//go:build !unix

package localstore

import "os"

// This system has no queue for file locks: SQLite's lock is polled.

func lockNow(*os.File) bool { return true }

func lockInTurn(*os.File) {}

func unlock(*os.File) {}
