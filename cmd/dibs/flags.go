package main

import (
	"errors"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/dibslock/dibs/cmd/dibs/internal/supervise"
	"golang.org/x/sys/unix"
)

// A durationFlag is a duration on the command line: in Go's format, or a number in seconds.
type durationFlag time.Duration

const noLimit durationFlag = -1

// String implements pflag.Value.
func (s *durationFlag) String() string {
	if *s == noLimit || *s == 0 {
		return ""
	}
	return time.Duration(*s).String()
}

// Set implements pflag.Value.
func (s *durationFlag) Set(text string) error {
	d, err := time.ParseDuration(text)
	if seconds, failed := strconv.ParseFloat(text, 64); failed == nil {
		d, err = -1, nil // out of range
		if seconds >= 0 && seconds <= maxDuration.Seconds() {
			d = time.Duration(seconds * float64(time.Second))
		}
	}
	if err != nil || d < 0 || d > maxDuration {
		return errors.New("want a duration such as 90s, 1m30s, or a number of seconds, up to 10 years")
	}
	*s = durationFlag(d)
	return nil
}

// maxDuration limits durations so that their sums cannot overflow.
const maxDuration = 10 * 365 * 24 * time.Hour

// Type implements pflag.Value.
func (s *durationFlag) Type() string { return "duration" }

// A lossFlag is the value of --on-lost.
type lossFlag supervise.LossAction

// String implements pflag.Value.
func (l *lossFlag) String() string {
	switch {
	case l.Warn:
		return "warn"
	case l.Signal == 0:
		return ""
	}
	return strings.TrimPrefix(unix.SignalName(l.Signal), "SIG")
}

// Type implements pflag.Value.
func (l *lossFlag) Type() string { return "signal" }

// Set implements pflag.Value.
func (l *lossFlag) Set(text string) error {
	if text == "warn" {
		*l = lossFlag{Warn: true}
		return nil
	}
	s := signalNumber(text)
	if s == 0 {
		return errors.New("want a signal, such as TERM or KILL, or warn")
	}
	*l = lossFlag{Signal: s}
	return nil
}

// signalNumber returns a name's signal, with or without SIG, or zero.
func signalNumber(name string) syscall.Signal {
	return unix.SignalNum("SIG" + strings.TrimPrefix(strings.ToUpper(name), "SIG"))
}
