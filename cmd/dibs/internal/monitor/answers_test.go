package monitor

import (
	"errors"
	"testing"
	"time"
)

// A request without an answer must not hide the cause of an earlier failure.
func TestCauseOfAnOutage(t *testing.T) {
	var a answers
	now, refused := time.Now(), errors.New("connection refused")
	a.failed(now, errNoAnswer)
	if !errors.Is(a.err, errNoAnswer) {
		t.Errorf("cause %v", a.err)
	}
	a.failed(now, refused)
	a.failed(now, errNoAnswer)
	if !errors.Is(a.err, refused) {
		t.Errorf("cause %v, want %v", a.err, refused)
	}
	a.succeeded(now)
	a.failed(now, errNoAnswer)
	if !errors.Is(a.err, errNoAnswer) {
		t.Errorf("cause %v after a success", a.err)
	}
}
