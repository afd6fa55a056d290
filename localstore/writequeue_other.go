//go:build !unix

package localstore

import "os"

// This system provides no queue for file locks: SQLite's lock is polled.

func tryFlock(*os.File) bool { return true }

func waitFlock(*os.File) {}

func unflock(*os.File) {}
