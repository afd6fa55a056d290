// Package sqlstore is what the stores in SQL databases share: the time limit of a request, the
// format of notifications, and how the rows of names are listed and removed.
package sqlstore
