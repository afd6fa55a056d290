//go:build !linux

package localstore

import "time"

// A session does nothing: this system lacks file locks that belong to an open file.
type session struct{}

func openSession(string) session { return session{} }

func (session) lock(time.Time) bool { return true }
func (session) unlock()             {}
func (session) hasUsers() bool      { return false }
func (session) use()                {}
func (session) write(string)        {}
func (session) read() string        { return "" }
func (session) close()              {}

func inodesOf(string) string { return "" }
