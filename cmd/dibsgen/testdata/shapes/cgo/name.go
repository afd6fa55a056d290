package cgo

// #include <stdlib.h>
import "C"

import "strconv"

func Name(id int) string { return "order:" + strconv.Itoa(int(C.abs(C.int(id)))) }
