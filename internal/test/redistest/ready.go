package redistest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/dibslock/dibs/internal/test/spawn"
	"github.com/dibslock/dibs/redisstore/redisconn"
)

// awaitReady polls until p serves commands. There is no event to wait for: a server with log level
// warning does not log its readiness.
func (s *Server) awaitReady(p *spawn.Process) error {
	c := s.dial()
	defer c.Close()
	return p.Await(startTimeout, func(ctx context.Context) error { return s.ready(ctx, c, p) })
}

// ready also checks the process ID: another server may have taken the port and reply while this
// server is failing.
func (s *Server) ready(ctx context.Context, c *Conn, p *spawn.Process) error {
	info, err := text(ctx, c, "INFO", "server")
	if needsPassword(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if pid := field(info, "process_id"); pid != strconv.Itoa(p.Pid()) {
		return fmt.Errorf("process %s answers instead", pid)
	}
	if _, err := text(ctx, c, "PING"); err != nil {
		return err // -LOADING, for example
	}
	if s.afterStart != nil {
		return s.afterStart(ctx, c)
	}
	return nil
}

// needsPassword reports whether a running server requires a password unknown to this package.
func needsPassword(err error) bool {
	var refusal redisconn.ServerError
	return errors.As(err, &refusal) &&
		(strings.HasPrefix(string(refusal), "NOAUTH") || strings.HasPrefix(string(refusal), "WRONGPASS"))
}

// text runs a command whose reply is a string.
func text(ctx context.Context, c *Conn, args ...string) (string, error) {
	value, err := c.Call(ctx, args...)
	s, _ := value.(string)
	return s, err
}

// field returns the value of "name:value" in an INFO reply.
func field(info, name string) string {
	for line := range strings.Lines(info) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if key == name {
			return value
		}
	}
	return ""
}

// Cmd runs a command on a new connection and returns its reply: nil, int64, string or []any. An
// error reply is a redisconn.ServerError.
func (s *Server) Cmd(args ...string) (any, error) {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	c := s.dial()
	defer c.Close()
	return c.Call(ctx, args...)
}

// Commands returns how many commands the server has processed, including those in scripts. The call
// itself counts in the next one, as does its AUTH if a password is set.
func (s *Server) Commands() (int64, error) {
	info, err := s.Cmd("INFO", "stats")
	if err != nil {
		return 0, err
	}
	stats, _ := info.(string)
	return strconv.ParseInt(field(stats, "total_commands_processed"), 10, 64)
}

// dial returns a Conn with the password from the server's arguments.
func (s *Server) dial() *Conn {
	c := Dial(s.Addr())
	c.Password = password(s.args)
	return c
}

func password(args []string) (password string) {
	for i := 1; i < len(args); i++ {
		if args[i-1] == "--requirepass" {
			password = args[i]
		}
	}
	return password
}
