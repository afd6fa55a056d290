// Package app has the client of a program.
package app

import "github.com/dibslock/dibs"

// App is a program.
type App struct{ Locks *dibs.Client }
