package main

import "strings"

// An environment is the environment variables of a process, each as NAME=value.
type environment []string

// get returns the value of a variable, or "".
func (e environment) get(name string) string {
	value, _ := e.lookup(name)
	return value
}

// lookup returns the value of a variable. set is true also for an empty value.
func (e environment) lookup(name string) (value string, set bool) {
	for _, v := range e {
		if value, set := strings.CutPrefix(v, name+"="); set {
			return value, true
		}
	}
	return "", false
}
