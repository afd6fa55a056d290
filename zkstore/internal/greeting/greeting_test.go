package greeting_test

import (
	"errors"
	"io"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/dibslock/dibs/internal/test/zktest"
	"github.com/dibslock/dibs/zkstore/internal/greeting"
)

// replies serves a connection: it reads a packet before each reply, and ends it.
func replies(t *testing.T, all ...[]byte) net.Conn {
	t.Helper()
	client, server := net.Pipe()
	go func() {
		defer server.Close()
		for _, reply := range all {
			size := make([]byte, 4)
			if _, err := io.ReadFull(server, size); err != nil {
				return
			}
			if _, err := io.CopyN(io.Discard, server, int64(size[3])); err != nil {
				return
			}
			if _, err := server.Write(reply); err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() { client.Close() })
	return client
}

// opened is the reply with a session of 4 s.
func opened(last ...byte) []byte {
	body := slices.Concat([]byte{0, 0, 0, 0, 0, 0, 0x0f, 0xa0, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 16}, make([]byte, 16), last)
	return append([]byte{0, 0, 0, byte(len(body))}, body...)
}

func TestReplies(t *testing.T) {
	t.Parallel()
	closed := append([]byte{0, 0, 0, 16}, make([]byte, 16)...)
	refused := slices.Concat([]byte{0, 0, 0, 16}, make([]byte, 12), []byte{0xff, 0xff, 0xff, 0x89})
	for name, c := range map[string]struct {
		conn net.Conn
		want greeting.Session
		err  error
	}{
		"session":                {replies(t, opened(0), closed), greeting.Session{Timeout: 4 * time.Second}, nil},
		"old server":             {replies(t, opened(), closed), greeting.Session{Timeout: 4 * time.Second}, nil},
		"read-only":              {replies(t, opened(1), closed), greeting.Session{Timeout: 4 * time.Second, ReadOnly: true}, nil},
		"read-only, no sessions": {replies(t, refused), greeting.Session{ReadOnly: true}, nil},
		"ends":                   {replies(t, nil), greeting.Session{}, greeting.ErrSilent},
		"HTTP":                   {replies(t, []byte("HTTP/1.1 400 Bad Request\r\n\r\n")), greeting.Session{}, greeting.ErrOther},
		"short":                  {replies(t, []byte{0, 0, 0, 2, 0, 0}), greeting.Session{}, greeting.ErrOther},
		"cut":                    {replies(t, []byte{0, 0, 0, 37, 0, 0}), greeting.Session{}, greeting.ErrSilent},
	} {
		have, err := greeting.Greet(c.conn, 0)
		if have != c.want || !errors.Is(err, c.err) {
			t.Errorf("%s: have %+v and %v, want %+v and %v", name, have, err, c.want, c.err)
		}
	}
}

// A server should grant its bounds, not the timeout that it is asked for.
func TestBounds(t *testing.T) {
	t.Parallel()
	s := zktest.NewServer(t, "tickTime=500", "maxSessionTimeout=7000")
	for timeout, want := range map[time.Duration]time.Duration{0: time.Second, 3 * time.Second: 3 * time.Second, time.Hour * 10000: 7 * time.Second} {
		conn, err := net.Dial("tcp", s.Endpoint())
		if err != nil {
			t.Fatal(err)
		}
		have, err := greeting.Greet(conn, timeout)
		conn.Close()
		if err != nil || have.Timeout != want {
			t.Errorf("%v: have %+v and %v, want %v", timeout, have, err, want)
		}
	}
}
