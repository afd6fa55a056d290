package doctor

import (
	"time"

	"github.com/dibslock/dibs/internal/checkup"
)

func (e *examination) readTime() checkup.TimeSample {
	return checkup.ReadTime(func() (now time.Time, err error) {
		err = e.queryRow("SELECT clock_timestamp()").Scan(&now)
		return now, err
	})
}

func (e *examination) checkClock() { e.CheckClock(e.start, e.readTime()) }
