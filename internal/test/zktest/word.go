package zktest

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

// patience is how long a server may take for an answer. A paused server sends none.
const patience = time.Second

// Command sends a four-letter word, as in "mntr", and returns the answer.
func (s *Server) Command(word string) (string, error) {
	conn, err := net.DialTimeout("tcp", s.Endpoint(), patience)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return "", err
	}
	return command(conn, word)
}

func command(conn net.Conn, word string) (string, error) {
	if _, err := conn.Write([]byte(word)); err != nil {
		return "", err
	}
	text, err := io.ReadAll(conn)
	return string(text), err
}

// A status is a server's answer about itself.
type status struct {
	mode string // standalone, leader or follower
	zxid uint64 // the number of its last change, with the leader's epoch in the upper half
}

// errNotServing means that a server accepts connections, but serves no client.
var errNotServing = errors.New("the server serves no client")

func (s *Server) status() (status, error) {
	text, err := s.Command("srvr")
	if err != nil {
		return status{}, err
	}
	return parse(text)
}

// parse decodes the answer to "srvr". Only a serving server reports its mode.
func parse(text string) (status, error) {
	mode, found := field(text, "Mode")
	if !found {
		return status{}, fmt.Errorf("%w: %q", errNotServing, text)
	}
	number, _ := field(text, "Zxid")
	zxid, err := strconv.ParseUint(number, 0, 64)
	return status{mode, zxid}, err
}

// field returns the value of a line.
func field(text, name string) (value string, found bool) {
	for line := range strings.Lines(text) {
		if value, found := strings.CutPrefix(line, name+": "); found {
			return strings.TrimSpace(value), true
		}
	}
	return "", false
}

// serves returns nil if the server on a connection serves clients.
func serves(conn net.Conn) error {
	text, err := command(conn, "srvr")
	if err == nil {
		_, err = parse(text)
	}
	return err
}
