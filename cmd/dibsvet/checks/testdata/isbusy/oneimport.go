package isbusy

import "github.com/dibslock/dibs"

func oneImport(err error) bool { return err == dibs.ErrBusy } // want `errors of dibs are wrapped`
