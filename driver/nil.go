package driver

import "reflect"

// IsNil reports whether an interface is nil or contains a nil pointer. A constructor that receives
// such a store, client or lock should return ErrInvalid. If it cannot return an error, it should
// return a value whose methods all return ErrInvalid.
func IsNil(value any) bool {
	v := reflect.ValueOf(value)
	return !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil()
}
