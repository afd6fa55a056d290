package doctor

import (
	"context"
	"time"

	"github.com/dibslock/dibs/checkup"
)

// ExamineWith is Examine with limits for a write's time and for revisions without a compaction.
func ExamineWith(ctx context.Context, target Target, slow time.Duration, many int64) (checkup.Findings, error) {
	return examine(ctx, target, limits{slow, many})
}
