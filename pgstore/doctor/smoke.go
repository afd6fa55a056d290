package doctor

import (
	"fmt"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/checkup"
)

// checkLocking tests what settings and rights only suggest: that locks work.
func (e *examination) checkLocking() {
	if e.unusable || e.Ctx.Err() != nil {
		return
	}
	const late = "waiters are not notified: they retry, so a hand-off takes longer"
	smoke := checkup.TestLocking(e.Ctx, e.store, !e.target.Poll)
	if e.Ctx.Err() != nil {
		return
	}
	e.AddFirst(
		checkup.If(smoke.Lock != nil, driver.Critical, "lock", fmt.Sprintf("a lock on a random name failed: %v", smoke.Lock),
			"other locks will fail too", "see the other findings and the error"),
		checkup.If(smoke.Listen != nil, driver.Warning, "notifications", fmt.Sprintf("LISTEN failed: %v", smoke.Listen), late,
			"let this user open one more connection for each client; or use the option Poll"),
		checkup.If(smoke.Grant != nil, driver.Warning, "notifications", fmt.Sprintf("no notification of a hand-off: %v", smoke.Grant), late,
			"connect to the server itself, not to a pooler in transaction mode; or use the option Poll"),
	)
}
