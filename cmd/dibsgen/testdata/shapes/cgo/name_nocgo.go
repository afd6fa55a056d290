//go:build !cgo

package cgo

import "strconv"

func Name(id int) string { return "order:" + strconv.Itoa(id) }
