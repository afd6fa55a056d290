// Package pagetest tests the dashboard in a real browser, Chromium. It is a separate module because
// it depends on a browser driver.
package pagetest
