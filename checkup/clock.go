package checkup

import (
	"fmt"
	"time"
)

// A TimeSample is a reading of the server's clock, between two readings of this host's clock.
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

// CheckClock compares the server's clock with this host's clock, and with an earlier reading.
func (s *Server) CheckClock(start, end TimeSample) {
	if start.Err != nil || s.Unchecked("clock", "the clock of the server", end.Err) {
		return
	}
	const large = 10 * time.Second
	away, way := end.ahead(), "ahead of"
	if away < 0 {
		away, way = -away, "behind"
	}
	differs := Note
	if away >= large {
		differs = Warning
	}
	jump := end.jumped(start)
	s.AddAll(
		If(away >= time.Second, differs, "clock", fmt.Sprintf("the server's clock is %v %s that of this host", away.Round(time.Millisecond), way),
			"none now, because dibs never compares clocks; if the server's clock is set, a jump forward ends leases early, and a jump back keeps names of dead holders locked",
			"check timedatectl or chronyc tracking on both hosts; let a time service slew the clock, not step it"),
		If(jump != 0, Critical, "clock-jump", fmt.Sprintf("the server's clock was set by %v during the checks", jump.Round(time.Millisecond)),
			"a jump forward ends leases early, and a second client acquires them; a jump back keeps names of dead holders locked",
			"let a single time service slew the clock, not step it; check chronyc tracking"),
	)
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
