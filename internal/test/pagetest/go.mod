module github.com/dibslock/dibs/internal/test/pagetest

go 1.26.0

require (
	github.com/chromedp/cdproto v0.159.0
	github.com/chromedp/chromedp v0.23.0
)
