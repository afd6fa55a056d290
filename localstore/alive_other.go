//go:build !linux

package localstore

import (
	"errors"
	"os"

	"github.com/dibslock/dibs/kvstore"
)

var errUnsupported = errors.New("this system has no file locks that end with their process")

func lockByte(string) (fd int, name string, err error) { return -1, "", errUnsupported }

func byteState(string, string, int) kvstore.OwnerState { return kvstore.Unknown }

func (l *liveness) file() (*os.File, error) { return nil, nil }

func (l *liveness) close() {}
