package redistest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"

	"github.com/dibslock/dibs/redisstore/redisconn"
)

func parse(s string) (any, error) {
	return readReply(bufio.NewReaderSize(strings.NewReader(s), maxLine))
}

func TestRepliesAreRead(t *testing.T) {
	for wire, want := range map[string]any{
		"+OK\r\n":                  "OK",
		"+\r\n":                    "",
		"-ERR no\r\n":              redisconn.ServerError("ERR no"),
		":-7\r\n":                  int64(-7),
		"$2\r\n\r\n\r\n":           "\r\n",
		"$0\r\n\r\n":               "",
		"$-1\r\n":                  nil,
		"*-1\r\n":                  nil,
		"*0\r\n":                   []any{},
		"*2\r\n:1\r\n*1\r\n+a\r\n": []any{int64(1), []any{"a"}},
		"*1\r\n-ERR no\r\n":        []any{redisconn.ServerError("ERR no")},
		nested(maxDepth):           unwrapped(maxDepth),
	} {
		got, err := parse(wire)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q: got %#v, %v, want %#v", wire, got, err, want)
		}
	}
}

func nested(depth int) string { return strings.Repeat("*1\r\n", depth) + ":1\r\n" }

func unwrapped(depth int) any {
	var v any = int64(1)
	for range depth {
		v = []any{v}
	}
	return v
}

func TestMalformedRepliesAreRefused(t *testing.T) {
	for _, wire := range []string{
		"\r\n", "OK\r\n", "+OK\n", ":\r\n", ":x\r\n", ":9223372036854775808\r\n",
		"$-2\r\n", "$x\r\n", "$1\r\nab\r\n", "*-2\r\n",
		fmt.Sprintf("$%d\r\n", maxBulk+1),
		fmt.Sprintf("*%d\r\n", maxItems+1),
		nested(maxDepth + 1),
		"+" + strings.Repeat("x", maxLine),
	} {
		if got, err := parse(wire); !errors.Is(err, errProtocol) {
			t.Errorf("%.40q: got %v, %v, want %v", wire, got, err, errProtocol)
		}
	}
}

// An end between two replies should mean a closed connection, and an end within a reply an error.
func TestRepliesCutShort(t *testing.T) {
	whole := "*2\r\n$3\r\nabc\r\n:1\r\n"
	for n := range whole {
		want := io.ErrUnexpectedEOF
		if n == 0 {
			want = io.EOF
		}
		if _, err := parse(whole[:n]); !errors.Is(err, want) {
			t.Errorf("%q: got %v, want %v", whole[:n], err, want)
		}
	}
}

func TestCommandsAreEncoded(t *testing.T) {
	got, err := appendCommand(nil, []string{"SET", "", "\r\n"})
	if want := "*3\r\n$3\r\nSET\r\n$0\r\n\r\n$2\r\n\r\n\r\n"; err != nil || string(got) != want {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
	if _, err := appendCommand(nil, nil); err == nil {
		t.Error("an empty command was encoded; Redis would not reply")
	}
}

// FuzzReply checks that encoding and decoding a reply again does not change it.
func FuzzReply(f *testing.F) {
	for _, seed := range []string{
		"+OK\r\n", "-ERR no\r\n", ":-7\r\n", "$3\r\nabc\r\n", "$-1\r\n", "*-1\r\n",
		"*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$0\r\n\r\n", nested(maxDepth + 1),
		"*1048576\r\n*1048576\r\n", "$67108864\r\nx", "*2\r\n-E\r\n*1\r\n:1\r\n",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, wire string) {
		first, err := parse(wire)
		if err != nil {
			return
		}
		second, err := parse(encode(t, first))
		if err != nil || !reflect.DeepEqual(first, second) {
			t.Errorf("%q: read as %#v, and again as %#v, %v", wire, first, second, err)
		}
	})
}

func encode(t *testing.T, value any) string {
	t.Helper()
	switch v := value.(type) {
	case nil:
		return "$-1\r\n"
	case int64:
		return fmt.Sprintf(":%d\r\n", v)
	case string:
		return fmt.Sprintf("$%d\r\n%s\r\n", len(v), v)
	case redisconn.ServerError:
		return fmt.Sprintf("-%s\r\n", v)
	case []any:
		var b strings.Builder
		fmt.Fprintf(&b, "*%d\r\n", len(v))
		for _, item := range v {
			b.WriteString(encode(t, item))
		}
		return b.String()
	}
	t.Fatalf("a reply of type %T", value)
	return ""
}
