package redistest

import (
	"errors"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dibslock/dibs/redisstore/redisconn"
)

func TestServerAnswers(t *testing.T) {
	s := Start(t)
	if got := s.MustCmd(t, "PING"); got != "PONG" {
		t.Errorf("PING: got %v", got)
	}
	if got, want := s.URL(), "redis://"+s.Addr(); got != want {
		t.Errorf("URL: got %s, want %s", got, want)
	}
	info := s.MustCmd(t, "INFO", "server").(string)
	if got, want := field(info, "process_id"), strconv.Itoa(s.Pid()); got != want {
		t.Errorf("Pid: got %s, want %s", want, got)
	}
}

func TestServersAreSeparate(t *testing.T) {
	a, b := Start(t), Start(t)
	a.MustCmd(t, "SET", "k", "v")
	if got := b.MustCmd(t, "GET", "k"); got != nil {
		t.Errorf("got %v on the other server", got)
	}
}

func TestCmdReturnsServerErrors(t *testing.T) {
	s := Start(t)
	_, err := s.Cmd("INCRBY", "k")
	var refusal redisconn.ServerError
	if !errors.As(err, &refusal) || !strings.HasPrefix(string(refusal), "ERR wrong number") {
		t.Errorf("got %v", err)
	}
}

func TestArgsOverride(t *testing.T) {
	s := Start(t, "--appendonly", "yes", "--maxmemory", "50mb")
	for name, want := range map[string]string{"appendonly": "yes", "maxmemory": "52428800", "save": ""} {
		if got := s.MustCmd(t, "CONFIG", "GET", name).([]any); got[1] != want {
			t.Errorf("%s: got %v, want %q", name, got[1], want)
		}
	}
}

func TestRestartLosesData(t *testing.T) {
	s := Start(t)
	addr, pid := s.Addr(), s.Pid()
	s.MustCmd(t, "SET", "k", "v")
	if err := s.Restart(); err != nil {
		t.Fatal(err)
	}
	if got := s.MustCmd(t, "GET", "k"); got != nil {
		t.Errorf("got %v from a server without persistence", got)
	}
	if s.Addr() != addr {
		t.Errorf("Addr: got %s, want %s", s.Addr(), addr)
	}
	if s.Pid() == pid {
		t.Error("the process is the same")
	}
}

func TestRestartKeepsData(t *testing.T) {
	s := Start(t, "--appendonly", "yes", "--appendfsync", "always")
	s.MustCmd(t, "SET", "k", "v")
	s.Kill()
	if err := s.Restart(); err != nil {
		t.Fatal(err)
	}
	if got := s.MustCmd(t, "GET", "k"); got != "v" {
		t.Errorf("got %v, want v", got)
	}
}

func TestKillAndStop(t *testing.T) {
	s := Start(t)
	s.Kill()
	if _, err := s.Cmd("PING"); err == nil {
		t.Error("a killed server replied")
	}
	s.Kill()
	s.Stop()
	if err := s.Restart(); err != nil {
		t.Fatal(err)
	}
	s.Stop()
	if _, err := s.Cmd("PING"); err == nil {
		t.Error("a stopped server replied")
	}
	s.Stop()
}

func TestPause(t *testing.T) {
	s := Start(t)
	c := dial(t, s.Addr())
	if err := s.Pause(); err != nil {
		t.Fatal(err)
	}
	_, err := c.Call(callContext(t, shortWait), "PING")
	wantTimeout(t, err)
	if err := s.Resume(); err != nil {
		t.Fatal(err)
	}
	want(t, c, "PONG", "PING")
}

func TestStopEndsAPausedServer(t *testing.T) {
	s := Start(t)
	if err := s.Pause(); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	s.Stop()
	if took := time.Since(begin); took >= stopTimeout {
		t.Errorf("took %v: the server had to be killed", took)
	}
}

func TestPassword(t *testing.T) {
	s := Start(t, "--requirepass", "sesame")
	if got := s.MustCmd(t, "PING"); got != "PONG" {
		t.Errorf("PING: got %v", got)
	}
	_, err := dial(t, s.Addr()).Call(callContext(t, longTimeout), "PING")
	if !needsPassword(err) {
		t.Errorf("without a password: got %v, want NOAUTH", err)
	}
	c := dial(t, s.Addr())
	c.Password = "wrong"
	if _, err := c.Call(callContext(t, longTimeout), "PING"); !needsPassword(err) {
		t.Errorf("with a wrong password: got %v, want WRONGPASS", err)
	}
}

func TestServerWithUnknownPasswordIsReady(t *testing.T) {
	s := Start(t, "--user", "default", "on", ">sesame", "~*", "&*", "+@all")
	if _, err := s.Cmd("PING"); !needsPassword(err) {
		t.Errorf("got %v, want NOAUTH", err)
	}
}

func TestBadArgumentsAreExplained(t *testing.T) {
	Start(t) // skips without a server
	_, err := StartServer(t.TempDir(), "--nonsense", "yes")
	if err == nil || !strings.Contains(err.Error(), "nonsense") {
		t.Errorf("got %v, want the server's error", err)
	}
}

func TestStartServerKeepsItsFilesInDir(t *testing.T) {
	Start(t) // skips without a server
	dir := t.TempDir()
	s, err := StartServer(dir, "--appendonly", "yes")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Stop()
	if files, err := filepath.Glob(filepath.Join(dir, "appendonly*")); len(files) == 0 {
		t.Errorf("no append-only file in %s: %v", dir, err)
	}
}

// Another process could take the port between its choice and its use; the server must then choose
// another.
func TestPortTaken(t *testing.T) {
	first := Start(t)
	second := &Server{bin: first.bin, dir: t.TempDir(), port: first.port}
	if err := second.launch(); !errors.Is(err, errPortTaken) {
		t.Errorf("got %v, want %v", err, errPortTaken)
	}
	if got := first.MustCmd(t, "PING"); got != "PONG" {
		t.Errorf("the first server: got %v", got)
	}
}

func TestCommands(t *testing.T) {
	s := Start(t)
	before, err := s.Commands()
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		s.MustCmd(t, "PING")
	}
	after, err := s.Commands()
	if err != nil {
		t.Fatal(err)
	}
	if got, want := after-before, int64(3+1); got != want {
		t.Errorf("got %d commands, want %d", got, want)
	}
}

// A cluster node waits two seconds before its state is ok, at each start.

func TestClusterNode(t *testing.T) {
	t.Parallel()
	s := StartClusterNode(t)
	s.MustCmd(t, "SET", "{a}1", "v")
	s.MustCmd(t, "SET", "b", "v")
	s.MustCmd(t, "DEL", "{a}1", "{a}2")
	if _, err := s.Cmd("DEL", "a", "b"); err == nil || !strings.HasPrefix(err.Error(), "CROSSSLOT") {
		t.Errorf("two slots in one command: got %v, want CROSSSLOT", err)
	}
}

func TestClusterNodeRestarts(t *testing.T) {
	t.Parallel()
	s := StartClusterNode(t)
	if err := s.Restart(); err != nil {
		t.Fatal(err)
	}
	s.MustCmd(t, "SET", "k", "v")
}

// A recordingTB is a testing.TB recording how the test ended.
type recordingTB struct {
	testing.TB
	skipped, failed bool
}

func (v *recordingTB) Helper() {}

func (v *recordingTB) Skipf(string, ...any) {
	v.skipped = true
	runtime.Goexit()
}

func (v *recordingTB) Fatal(...any) {
	v.failed = true
	runtime.Goexit()
}

func runSkipOrFail(err error) *recordingTB {
	v := new(recordingTB)
	done := make(chan struct{})
	go func() {
		defer close(done)
		skipOrFail(v, err)
	}()
	<-done
	return v
}

func TestWithoutServer(t *testing.T) {
	t.Setenv("DIBS_REQUIRE_REDIS", "")
	if v := runSkipOrFail(ErrNoServer); !v.skipped {
		t.Error("the test is not skipped")
	}
	if v := runSkipOrFail(errPortTaken); !v.failed {
		t.Error("a server that does not start is not a failure")
	}
	t.Setenv("DIBS_REQUIRE_REDIS", "1")
	if v := runSkipOrFail(ErrNoServer); !v.failed {
		t.Error("the test does not fail although a server is required")
	}
}
