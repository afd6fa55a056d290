//go:build !unix

package localstore

import "os"

// There is no queue for files here: the database's own lock has to do.

func lockNow(*os.File) bool { return true }

func lockInTurn(*os.File) {}

func unlock(*os.File) {}
