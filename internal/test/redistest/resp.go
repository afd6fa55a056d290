package redistest

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/dibslock/dibs/redisstore/redisconn"
)

// Limits on a reply. Without them, twelve bytes could make the parser use up the memory.
const (
	maxBulk  = 64 << 20
	maxItems = 1 << 20
	maxDepth = 8
	maxLine  = 16 << 10
)

var errProtocol = errors.New("redistest: malformed reply")

// appendCommand encodes a command as a bulk-string array.
func appendCommand(b []byte, cmd []string) ([]byte, error) {
	if len(cmd) == 0 {
		return nil, errors.New("redistest: empty command") // Redis would not reply
	}
	b = appendHeader(b, '*', len(cmd))
	for _, arg := range cmd {
		b = append(appendHeader(b, '$', len(arg)), arg...)
		b = append(b, "\r\n"...)
	}
	return b, nil
}

func appendHeader(b []byte, kind byte, n int) []byte {
	b = strconv.AppendInt(append(b, kind), int64(n), 10)
	return append(b, "\r\n"...)
}

// readReply reads one RESP2 reply: nil, int64, string, []any of these, or a
// redisconn.ServerError, also within an array. After an error the stream is unusable.
func readReply(r *bufio.Reader) (any, error) { return readValue(r, maxDepth) }

// readValue reads a value with at most depth nested arrays.
func readValue(r *bufio.Reader, depth int) (any, error) {
	line, err := readLine(r)
	if err != nil {
		return nil, err
	}
	kind, rest := line[0], string(line[1:])
	switch kind {
	case '+':
		return rest, nil
	case '-':
		return redisconn.ServerError(rest), nil
	case ':':
		return parseInt(rest)
	case '$':
		return readBulk(r, rest)
	case '*':
		return readArray(r, rest, depth)
	}
	return nil, fmt.Errorf("%w: type %q", errProtocol, kind)
}

// readLine returns a nonempty line without its end. It is valid until the next read.
func readLine(r *bufio.Reader) ([]byte, error) {
	line, err := r.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		return nil, fmt.Errorf("%w: endless line", errProtocol)
	}
	if err != nil {
		return nil, unexpectedEOF(err, len(line))
	}
	line, whole := bytes.CutSuffix(line, []byte("\r\n"))
	if !whole || len(line) == 0 {
		return nil, fmt.Errorf("%w: line %q", errProtocol, line)
	}
	return line, nil
}

// unexpectedEOF distinguishes an end within a reply from an end between replies.
func unexpectedEOF(err error, read int) error {
	if errors.Is(err, io.EOF) && read > 0 {
		return io.ErrUnexpectedEOF
	}
	return err
}

func parseInt(s string) (any, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("%w: integer %q", errProtocol, s)
	}
	return n, nil
}

// parseLen reads the length of a bulk string or array; −1 means nil.
func parseLen(s string, limit int) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil || n < -1 || n > limit {
		return 0, fmt.Errorf("%w: length %q", errProtocol, s)
	}
	return n, nil
}

func readBulk(r *bufio.Reader, length string) (any, error) {
	n, err := parseLen(length, maxBulk)
	if err != nil || n == -1 {
		return nil, err
	}
	b := make([]byte, n+2)
	if _, err := io.ReadFull(r, b); err != nil {
		return nil, unexpectedEOF(err, 1)
	}
	s, whole := bytes.CutSuffix(b, []byte("\r\n"))
	if !whole {
		return nil, fmt.Errorf("%w: bulk string without end", errProtocol)
	}
	return string(s), nil
}

func readArray(r *bufio.Reader, length string, depth int) (any, error) {
	n, err := parseLen(length, maxItems)
	if err != nil || n == -1 {
		return nil, err
	}
	if depth == 0 {
		return nil, fmt.Errorf("%w: nested too deep", errProtocol)
	}
	items := []any{} // grows with the received elements, not with the announced length
	for range n {
		item, err := readValue(r, depth-1)
		if err != nil {
			return nil, unexpectedEOF(err, 1)
		}
		items = append(items, item)
	}
	return items, nil
}
