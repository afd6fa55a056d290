package embeddedfile

import "context"

type Shop interface {
	Payer
	Ping(ctx context.Context) error
}
