package main

import "strings"

// An environment is a process's environment variables, each as NAME=value.
type environment []string

// get returns a variable's value, or "".
func (e environment) get(name string) string {
	value, _ := e.lookup(name)
	return value
}

// lookup returns a variable's value. set is true even for an empty value.
func (e environment) lookup(name string) (value string, set bool) {
	for _, v := range e {
		if value, set := strings.CutPrefix(v, name+"="); set {
			return value, true
		}
	}
	return "", false
}
