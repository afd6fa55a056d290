package redisconn

import (
	"bytes"
	"net"
	"strconv"
	"strings"
	"syscall"
)

// AnswerHello returns a connection that answers HELLO itself, a client library's first command: it
// is unknown. HELLO must be in the first write, at its start or after AUTH, and the reply must be
// read after this write.
func AnswerHello(conn net.Conn) net.Conn {
	answering := &answeringConn{Conn: conn}
	// go-redis looks at an idle connection's socket, if it can.
	if socket, ok := conn.(syscall.Conn); ok {
		return socketConn{answering, socket}
	}
	return answering
}

type answeringConn struct {
	net.Conn
	begun  bool
	before int    // replies to come before the answer, a line each
	answer []byte // its remaining bytes, and the bytes read behind it
}

type socketConn struct {
	*answeringConn
	syscall.Conn
}

// Write implements net.Conn.
func (c *answeringConn) Write(b []byte) (int, error) {
	if c.begun {
		return c.Conn.Write(b)
	}
	c.begun = true
	hello, rest, before := cutHello(b)
	if !hello {
		return c.Conn.Write(b)
	}
	c.before, c.answer = before, []byte("-ERR unknown command 'HELLO'\r\n")
	if len(rest) > 0 {
		if _, err := c.Conn.Write(rest); err != nil {
			return 0, err
		}
	}
	return len(b), nil
}

// Read implements net.Conn.
func (c *answeringConn) Read(b []byte) (int, error) {
	if c.before == 0 && len(c.answer) > 0 {
		n := copy(b, c.answer)
		c.answer = c.answer[n:]
		return n, nil
	}
	n, err := c.Conn.Read(b)
	for i := 0; i < n && c.before > 0; i++ {
		if b[i] != '\n' {
			continue
		}
		if c.before--; c.before == 0 {
			c.answer = append(c.answer, b[i+1:n]...)
			return i + 1, nil
		}
	}
	return n, err
}

// cutHello cuts the command HELLO from a text that contains commands. It returns how many commands
// are before it.
func cutHello(text []byte) (found bool, rest []byte, before int) {
	for left := text; len(left) > 0; before++ {
		word, length := firstCommand(left)
		if length == 0 {
			break
		}
		if strings.EqualFold(word, "HELLO") {
			at := len(text) - len(left)
			return true, append(append([]byte(nil), text[:at]...), left[length:]...), before
		}
		left = left[length:]
	}
	return false, nil, 0
}

// firstCommand returns the first command's first word and length in a text. The length is zero if
// the text does not begin with a whole command.
func firstCommand(text []byte) (word string, length int) {
	words, left, ok := cutNumber(text, '*')
	for i := 0; ok && i < words; i++ {
		var n int
		if n, left, ok = cutNumber(left, '$'); !ok || n > len(left)-2 {
			return "", 0
		}
		if i == 0 {
			word = string(left[:n])
		}
		left = left[n+2:]
	}
	if !ok {
		return "", 0
	}
	return word, len(text) - len(left)
}

// cutNumber reads a line with a number after a mark.
func cutNumber(text []byte, mark byte) (n int, left []byte, ok bool) {
	line, left, found := bytes.Cut(text, []byte("\r\n"))
	if !found || len(line) == 0 || line[0] != mark {
		return 0, nil, false
	}
	n, err := strconv.Atoi(string(line[1:]))
	return n, left, err == nil && n >= 0
}
