package zkurl

import "github.com/dibslock/dibs/zkstore"

// Credentials returns the user and the password.
func (u *URL) Credentials() Credentials { return Credentials{u.username, u.password} }

// Format returns the format of the znodes.
func (u *URL) Format() zkstore.NodeFormat { return u.format }
