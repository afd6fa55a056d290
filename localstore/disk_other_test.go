//go:build !linux

package localstore

import "errors"

func mountSmall(string) error { return errors.ErrUnsupported }

func unmount(string) error { return nil }

func mountOverlay(string) error { return errors.ErrUnsupported }
