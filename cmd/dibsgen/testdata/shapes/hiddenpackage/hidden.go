package hiddenpackage

import (
	"context"
	"net/url"
)

type Shop interface {
	//dibs:lock url.Host
	Fetch(ctx context.Context, url *url.URL) error
	//dibs:lock url
	Parse(ctx context.Context, url string) (*url.URL, error)
}
