package doctor

import (
	"context"
	"time"

	"github.com/dibslock/dibs/checkup"
)

// ExamineWith is Examine with a limit for a write's time.
func ExamineWith(ctx context.Context, target Target, slow time.Duration) (checkup.Findings, error) {
	return examine(ctx, target, slow)
}
