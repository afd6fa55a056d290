// Package dashboard shows the locks of a store as web pages, live, and as JSON.
//
// [New] returns an http.Handler that can be mounted anywhere. It has no authentication: that
// is the program's. It changes nothing, unless [Config].Allow permits a request to revoke a
// lease. docs/dashboard.md describes the pages.
package dashboard
