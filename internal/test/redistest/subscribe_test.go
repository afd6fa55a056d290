package redistest

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/dibslock/dibs/redisstore/redisconn"
)

// listen subscribes and returns after the confirmation.
func listen(ctx context.Context, t *testing.T, c *Conn) (messages <-chan string, failed <-chan error) {
	t.Helper()
	received, ended := make(chan string, 10), make(chan error, 1)
	go func() {
		ended <- c.Subscribe(ctx, "news", func() bool { return true }, func(m string) { received <- m })
	}()
	if m := receiveMessage(t, received); m != "" {
		t.Fatalf("got %q, want the confirmation", m)
	}
	return received, ended
}

func receiveMessage(t *testing.T, messages <-chan string) string {
	t.Helper()
	select {
	case m := <-messages:
		return m
	case <-time.After(longTimeout):
		t.Fatal("no message")
		return ""
	}
}

func TestSubscribe(t *testing.T) {
	s := Start(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	messages, failed := listen(ctx, t, dial(t, s.Addr()))
	s.MustCmd(t, "PUBLISH", "other", "no")
	for _, m := range []string{"a", "b"} {
		s.MustCmd(t, "PUBLISH", "news", m)
		if got := receiveMessage(t, messages); got != m {
			t.Errorf("got %q, want %q", got, m)
		}
	}
	cancel()
	if err := receive(t, failed); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
}

func TestSubscribeStaysOnAQuietChannel(t *testing.T) {
	t.Parallel()
	s := Start(t)
	messages, failed := listen(t.Context(), t, dial(t, s.Addr()))
	eventually(t, "it pings twice", func() bool {
		stats := s.MustCmd(t, "INFO", "commandstats").(string)
		return strings.HasPrefix(field(stats, "cmdstat_ping"), "calls=3,") // Start sent one PING
	})
	s.MustCmd(t, "PUBLISH", "news", "late")
	if got := receiveMessage(t, messages); got != "late" {
		t.Errorf("got %q", got)
	}
	select {
	case err := <-failed:
		t.Errorf("the subscription ended: %v", err)
	default:
	}
}

func TestSubscribeDetectsAPausedServer(t *testing.T) {
	t.Parallel()
	s := Start(t)
	_, failed := listen(t.Context(), t, dial(t, s.Addr()))
	if err := s.Pause(); err != nil {
		t.Fatal(err)
	}
	if err := receive(t, failed); !errors.Is(err, errNoReply) {
		t.Errorf("got %v, want %v", err, errNoReply)
	}
}

func TestSubscribeDetectsADeadServer(t *testing.T) {
	s := Start(t)
	_, failed := listen(t.Context(), t, dial(t, s.Addr()))
	s.Kill()
	if err := receive(t, failed); err == nil {
		t.Error("no error")
	}
}

func TestSubscribeReportsARefusal(t *testing.T) {
	s := Start(t)
	s.MustCmd(t, "ACL", "SETUSER", "default", "resetchannels")
	err := dial(t, s.Addr()).Subscribe(t.Context(), "news", func() bool { return true }, func(string) {})
	var refusal redisconn.ServerError
	if !errors.As(err, &refusal) || !strings.HasPrefix(string(refusal), "NOPERM") {
		t.Errorf("got %v, want NOPERM", err)
	}
}

func TestCloseEndsASubscription(t *testing.T) {
	s := Start(t)
	c := dial(t, s.Addr())
	_, failed := listen(t.Context(), t, c)
	c.Close()
	if err := receive(t, failed); err == nil {
		t.Error("no error")
	}
}
