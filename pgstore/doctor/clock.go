package doctor

import (
	"fmt"
	"time"

	"github.com/dibslock/dibs/driver"
)

// A timeSample is a reading of the server's clock, between two of this host's.
type timeSample struct {
	sent, server, received time.Time
	err                    error
}

func (e *examination) readTime() timeSample {
	s := timeSample{sent: time.Now()}
	s.err = e.queryRow("SELECT clock_timestamp()").Scan(&s.server)
	s.received = time.Now()
	return s
}

// checkClock compares the server's clock with that of this host, and with its first reading.
func (e *examination) checkClock() {
	end := e.readTime()
	if e.start.err != nil || e.unchecked("clock", "the clock of the server", end.err) {
		return
	}
	e.addAll(findingsOfClock(e.start, end)...)
}

func findingsOfClock(start, end timeSample) []candidate {
	away, way := end.ahead(), "ahead of"
	if away < 0 {
		away, way = -away, "behind"
	}
	jump := end.jumped(start)
	return []candidate{
		{away >= time.Second, driver.Note, "clock", fmt.Sprintf("the server's clock is %v %s that of this host", away.Round(time.Millisecond), way),
			"none now, because dibs uses the server's clock only; if it is set, leases end early, or names of dead holders stay locked",
			"check chronyc tracking on both hosts; let a time service slew the clock, not step it"},
		{jump != 0, driver.Critical, "clock-jump", fmt.Sprintf("the server's clock was set by %v during the checks", jump.Round(time.Millisecond)),
			"a jump forward ends leases early, and a second client acquires them; a jump back keeps names of dead holders locked",
			"let a single time service slew the clock, not step it; check chronyc tracking"},
	}
}

// ahead returns the least by which the server's clock is ahead; negative if it is behind.
func (s timeSample) ahead() time.Duration {
	if low := s.server.Sub(s.received); low > 0 {
		return low
	}
	return min(s.server.Sub(s.sent), 0)
}

// jumped returns by how much the server's clock was set since then.
func (s timeSample) jumped(then timeSample) time.Duration {
	const slack = 50 * time.Millisecond
	server := s.server.Sub(then.server)
	least, most := s.sent.Sub(then.received), s.received.Sub(then.sent)
	switch {
	case server > most+most/50+slack:
		return server - most
	case server < least-least/50-slack:
		return server - least
	}
	return 0
}
