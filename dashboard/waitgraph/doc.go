// Package waitgraph finds out from names' states which process waits for which, and which processes
// wait for each other. It is a pure function.
package waitgraph
