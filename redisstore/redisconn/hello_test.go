package redisconn

import (
	"io"
	"net"
	"testing"
)

// The reply to HELLO is in its place among the others, however the bytes arrive.
func TestAnswerHello(t *testing.T) {
	const hello, auth, ping = "*2\r\n$5\r\nhello\r\n$1\r\n3\r\n", "*2\r\n$4\r\nAUTH\r\n$7\r\nHELLO\r\n\r\n", "*1\r\n$4\r\nPING\r\n"
	const unknown = "-ERR unknown command 'HELLO'\r\n"
	for _, c := range []struct{ written, sent, replies, read string }{
		{hello, "", "", unknown},
		{auth + hello, auth, "+OK\r\n", "+OK\r\n" + unknown},
		{hello + ping, ping, "+PONG\r\n", unknown + "+PONG\r\n"},
		{auth + hello + ping, auth + ping, "-WRONGPASS\r\n+PONG\r\n", "-WRONGPASS\r\n" + unknown + "+PONG\r\n"},
		{ping, ping, "+PONG\r\n", "+PONG\r\n"},
		{"*1\r\n$4\r\nPI", "*1\r\n$4\r\nPI", "x", "x"},
		{"*-1\r\n*1\r\n$-9\r\n", "*-1\r\n*1\r\n$-9\r\n", "x", "x"},
	} {
		for _, size := range []int{1, 3, 100} {
			near, far := net.Pipe()
			conn := AnswerHello(near)
			sent := make(chan string, 1)
			go func() {
				b := make([]byte, len(c.sent))
				_, _ = io.ReadFull(far, b) // the comparison reports missing bytes
				sent <- string(b)
				_, _ = io.WriteString(far, c.replies)
			}()
			if n, err := io.WriteString(conn, c.written); n != len(c.written) || err != nil {
				t.Errorf("%q: wrote %d, %v", c.written, n, err)
			}
			if have := <-sent; have != c.sent {
				t.Errorf("%q: sent %q, want %q", c.written, have, c.sent)
			}
			var read []byte
			for len(read) < len(c.read) {
				b := make([]byte, size)
				n, err := conn.Read(b)
				if err != nil {
					t.Fatal(err)
				}
				read = append(read, b[:n]...)
			}
			if string(read) != c.read {
				t.Errorf("%q: read %q, want %q", c.written, read, c.read)
			}
			far.Close()
			near.Close()
		}
	}
}
