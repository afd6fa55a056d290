// Package waitgraph finds out from the states of names which process waits for which, and
// which of them wait for each other. It is a pure function of the states.
package waitgraph
