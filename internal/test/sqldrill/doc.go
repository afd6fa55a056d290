// Package sqldrill tests stores in SQL databases while something fails.
package sqldrill
