// Package dashboard shows a store's locks as web pages, live, and as JSON.
//
// [New] returns an http.Handler that can be mounted anywhere. Authentication is the program's
// responsibility. The dashboard changes nothing, unless [Config].Allow permits a request to revoke
// a lease. docs/dashboard.md describes the pages.
package dashboard
