// Package pagetest tests the dashboard in a real browser, Chromium. It is a module of its own
// because the driver of the browser is a dependency.
package pagetest
