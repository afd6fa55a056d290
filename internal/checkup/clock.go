package checkup

import (
	"fmt"
	"time"

	"github.com/dibslock/dibs/driver"
)

// A TimeSample is a reading of the server's clock, between two of this host's.
type TimeSample struct {
	Sent, Server, Received time.Time
	Err                    error
}

// ReadTime reads the server's clock.
func ReadTime(read func() (time.Time, error)) TimeSample {
	s := TimeSample{Sent: time.Now()}
	s.Server, s.Err = read()
	s.Received = time.Now()
	return s
}

// CheckClock compares the server's clock with that of this host, and with an earlier reading.
func (r *Report) CheckClock(start, end TimeSample) {
	if start.Err != nil || r.Unchecked("clock", "the clock of the server", end.Err) {
		return
	}
	r.AddAll(findingsOfClock(start, end)...)
}

func findingsOfClock(start, end TimeSample) []Candidate {
	away, way := end.ahead(), "ahead of"
	if away < 0 {
		away, way = -away, "behind"
	}
	jump := end.jumped(start)
	return []Candidate{
		{away >= time.Second, driver.Note, "clock", fmt.Sprintf("the server's clock is %v %s that of this host", away.Round(time.Millisecond), way),
			"none now, because dibs uses the server's clock only; if it is set, leases end early, or names of dead holders stay locked",
			"check chronyc tracking on both hosts; let a time service slew the clock, not step it"},
		{jump != 0, driver.Critical, "clock-jump", fmt.Sprintf("the server's clock was set by %v during the checks", jump.Round(time.Millisecond)),
			"a jump forward ends leases early, and a second client acquires them; a jump back keeps names of dead holders locked",
			"let a single time service slew the clock, not step it; check chronyc tracking"},
	}
}

// ahead returns the least by which the server's clock is ahead; negative if it is behind.
func (s TimeSample) ahead() time.Duration {
	if low := s.Server.Sub(s.Received); low > 0 {
		return low
	}
	return min(s.Server.Sub(s.Sent), 0)
}

// jumped returns by how much the server's clock was set since then.
func (s TimeSample) jumped(then TimeSample) time.Duration {
	const slack = 50 * time.Millisecond
	server := s.Server.Sub(then.Server)
	least, most := s.Sent.Sub(then.Received), s.Received.Sub(then.Sent)
	switch {
	case server > most+most/50+slack:
		return server - most
	case server < least-least/50-slack:
		return server - least
	}
	return 0
}
