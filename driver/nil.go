package driver

import "reflect"

// IsNil reports whether an interface has no value, or a nil pointer. A constructor that is
// given such a store, client or lock returns a value all of whose calls return ErrInvalid, or
// returns ErrInvalid itself if it returns an error.
func IsNil(value any) bool {
	v := reflect.ValueOf(value)
	return !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil()
}
