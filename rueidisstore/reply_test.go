package rueidisstore

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"reflect"
	"strings"
	"testing"

	"github.com/dibslock/dibs/redisstore/redisconn"
	"github.com/redis/rueidis"
)

// RESP3 replies are converted to their RESP2 values.
func TestValue(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		wire string
		want any
	}{
		{"_\r\n", nil},
		{"$-1\r\n", nil},
		{"*-1\r\n", nil},
		{"+OK\r\n", "OK"},
		{"$0\r\n\r\n", ""},
		{"$4\r\ntxt:\r\n", "txt:"},
		{"$5\r\na\r\nbc\r\n", "a\r\nbc"},
		{":-7\r\n", int64(-7)},
		{":9223372036854775807\r\n", int64(9223372036854775807)},
		{"#t\r\n", int64(1)},
		{"#f\r\n", int64(0)},
		{",3.25\r\n", "3.25"},
		{",inf\r\n", "inf"},
		{",-1e+30\r\n", "-1e+30"},
		{"(3492890328409238509324850943850943825024385\r\n", "3492890328409238509324850943850943825024385"},
		{"=10\r\ntxt:a:b\r\nc\r\n", "a:b\r\nc"},
		{"=4\r\nmkd:\r\n", ""},
		{"*0\r\n", []any{}},
		{"~2\r\n+a\r\n:1\r\n", []any{"a", int64(1)}},
		{"*3\r\n:1\r\n*2\r\n_\r\n#t\r\n$1\r\nx\r\n", []any{int64(1), []any{nil, int64(1)}, "x"}},
		{"%2\r\n+b\r\n%1\r\n+k\r\n,1.5\r\n+a\r\n*1\r\n:2\r\n", []any{"a", []any{int64(2)}, "b", []any{"k", "1.5"}}},
		{"%0\r\n", []any{}},
		{"-ERR unknown command 'X'\r\n", redisconn.ServerError("ERR unknown command 'X'")},
		{"-NOPERM no\r\n", redisconn.ServerError("NOPERM no")},
		{"!10\r\nERR a\r\nb c\r\n", redisconn.ServerError("ERR a\r\nb c")},
		{"*2\r\n:1\r\n-ERR within\r\n", redisconn.ServerError("ERR within")},
		{"%1\r\n+k\r\n-ERR within\r\n", redisconn.ServerError("ERR within")},
	} {
		client := clientOf(t, c.wire)
		r := (&conn{client: client}).reply(t.Context(), client.Do(t.Context(), client.B().Ping().Build()))
		have := r.Value
		if r.Err != nil {
			have = r.Err
		}
		if !reflect.DeepEqual(have, c.want) {
			t.Errorf("%q: %#v, want %#v", c.wire, have, c.want)
		}
	}
}

// In RESP3 map keys can have any type. Redis only sends strings; any other type is an error.
func TestValueOfMapWithOtherKeys(t *testing.T) {
	t.Parallel()
	client := clientOf(t, "%1\r\n:1\r\n:2\r\n")
	r := (&conn{client: client}).reply(t.Context(), client.Do(t.Context(), client.B().Ping().Build()))
	var server redisconn.ServerError
	if r.Err == nil || errors.As(r.Err, &server) {
		t.Errorf("%v, %v, want an error that is not the server's", r.Value, r.Err)
	}
}

// clientOf returns a client for a RESP3 server that replies to PING with the given bytes.
func clientOf(t *testing.T, reply string) rueidis.Client {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			go serve(c, reply)
		}
	}()
	client, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress: []string{listener.Addr().String()}, ForceSingleClient: true, DisableCache: true,
		ReadBufferEachConn: 1 << 12, WriteBufferEachConn: 1 << 12, RingScaleEachConn: 4,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

func serve(c net.Conn, reply string) {
	defer c.Close()
	in := bufio.NewReader(c)
	for {
		var n int
		if line, err := in.ReadString('\n'); err != nil {
			return
		} else if _, err := fmt.Sscanf(line, "*%d", &n); err != nil {
			return
		}
		var name string
		for i := range n {
			in.ReadString('\n')
			word, err := in.ReadString('\n')
			if err != nil {
				return
			}
			if i == 0 {
				name = strings.TrimSpace(word)
			}
		}
		switch name {
		case "HELLO":
			fmt.Fprint(c, "%2\r\n+version\r\n+7.0.0\r\n+proto\r\n:3\r\n")
		case "PING":
			fmt.Fprint(c, reply)
		default:
			fmt.Fprint(c, "+OK\r\n")
		}
	}
}
