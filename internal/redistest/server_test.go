package redistest

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dibslock/dibs/redisstore"
)

func TestServerAnswers(t *testing.T) {
	s := Start(t)
	if have := s.MustCmd(t, "PING"); have != "PONG" {
		t.Errorf("PING: have %v", have)
	}
	if have, want := s.URL(), "redis://"+s.Addr(); have != want {
		t.Errorf("URL: have %s, want %s", have, want)
	}
	info := s.MustCmd(t, "INFO", "server").(string)
	if have, want := field(info, "process_id"), strconv.Itoa(s.Pid()); have != want {
		t.Errorf("Pid: have %s, want %s", want, have)
	}
}

func TestServersAreSeparate(t *testing.T) {
	a, b := Start(t), Start(t)
	a.MustCmd(t, "SET", "k", "v")
	if have := b.MustCmd(t, "GET", "k"); have != nil {
		t.Errorf("have %v on the other server", have)
	}
}

func TestCmdReturnsServerErrors(t *testing.T) {
	s := Start(t)
	_, err := s.Cmd("INCRBY", "k")
	var refusal redisstore.ServerError
	if !errors.As(err, &refusal) || !strings.HasPrefix(string(refusal), "ERR wrong number") {
		t.Errorf("have %v", err)
	}
}

func TestArgsOverride(t *testing.T) {
	s := Start(t, "--appendonly", "yes", "--maxmemory", "50mb")
	for name, want := range map[string]string{"appendonly": "yes", "maxmemory": "52428800", "save": ""} {
		if have := s.MustCmd(t, "CONFIG", "GET", name).([]any); have[1] != want {
			t.Errorf("%s: have %v, want %q", name, have[1], want)
		}
	}
}

func TestRestartForgets(t *testing.T) {
	s := Start(t)
	addr, pid := s.Addr(), s.Pid()
	s.MustCmd(t, "SET", "k", "v")
	if err := s.Restart(); err != nil {
		t.Fatal(err)
	}
	if have := s.MustCmd(t, "GET", "k"); have != nil {
		t.Errorf("have %v from a server that saves nothing", have)
	}
	if s.Addr() != addr {
		t.Errorf("Addr: have %s, want %s", s.Addr(), addr)
	}
	if s.Pid() == pid {
		t.Error("the process is the same")
	}
}

func TestRestartRemembers(t *testing.T) {
	s := Start(t, "--appendonly", "yes", "--appendfsync", "always")
	s.MustCmd(t, "SET", "k", "v")
	s.Kill()
	if err := s.Restart(); err != nil {
		t.Fatal(err)
	}
	if have := s.MustCmd(t, "GET", "k"); have != "v" {
		t.Errorf("have %v, want v", have)
	}
}

func TestKillAndStop(t *testing.T) {
	s := Start(t)
	s.Kill()
	if _, err := s.Cmd("PING"); err == nil {
		t.Error("a killed server answers")
	}
	s.Kill()
	s.Stop()
	if err := s.Restart(); err != nil {
		t.Fatal(err)
	}
	s.Stop()
	if _, err := s.Cmd("PING"); err == nil {
		t.Error("a stopped server answers")
	}
	s.Stop()
}

func TestPause(t *testing.T) {
	s := Start(t)
	c := dial(t, s.Addr())
	if err := s.Pause(); err != nil {
		t.Fatal(err)
	}
	_, err := c.Call(within(t, blink), "PING")
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
	if took := time.Since(begin); took >= termWithin {
		t.Errorf("it took %v: the server had to be killed", took)
	}
}

func TestPassword(t *testing.T) {
	s := Start(t, "--requirepass", "sesame")
	if have := s.MustCmd(t, "PING"); have != "PONG" {
		t.Errorf("PING: have %v", have)
	}
	_, err := dial(t, s.Addr()).Call(within(t, generous), "PING")
	if !locked(err) {
		t.Errorf("without a password: have %v, want NOAUTH", err)
	}
	c := dial(t, s.Addr())
	c.Password = "wrong"
	if _, err := c.Call(within(t, generous), "PING"); !locked(err) {
		t.Errorf("with a wrong password: have %v, want WRONGPASS", err)
	}
}

func TestAServerWithSecretUsersIsReady(t *testing.T) {
	s := Start(t, "--user", "default", "on", ">sesame", "~*", "&*", "+@all")
	if _, err := s.Cmd("PING"); !locked(err) {
		t.Errorf("have %v, want NOAUTH", err)
	}
}

func TestBadArgumentsAreExplained(t *testing.T) {
	Start(t) // skips where there is no server
	_, err := StartServer(t.TempDir(), "--nonsense", "yes")
	if err == nil || !strings.Contains(err.Error(), "nonsense") {
		t.Errorf("have %v, want the server's complaint", err)
	}
}

func TestStartServerKeepsItsFilesInDir(t *testing.T) {
	Start(t) // skips where there is no server
	dir := t.TempDir()
	s, err := StartServer(dir, "--appendonly", "yes")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Stop()
	if _, err := os.Stat(filepath.Join(dir, "appendonlydir")); err != nil {
		t.Error(err)
	}
}

// Between the choice of a free port and its use, somebody else may take it.
func TestAPortTakenIsToldFromASuccess(t *testing.T) {
	first := Start(t)
	second := &Server{bin: first.bin, dir: t.TempDir(), port: first.port}
	if err := second.launch(); !errors.Is(err, errPortTaken) {
		t.Errorf("have %v, want %v", err, errPortTaken)
	}
	if have := first.MustCmd(t, "PING"); have != "PONG" {
		t.Errorf("the first server: have %v", have)
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
	if have, want := after-before, int64(3+1); have != want {
		t.Errorf("have %d commands, want %d", have, want)
	}
}

// A cluster node waits two seconds before it calls its state ok, at each start.

func TestClusterNode(t *testing.T) {
	t.Parallel()
	s := StartClusterNode(t)
	s.MustCmd(t, "SET", "{a}1", "v")
	s.MustCmd(t, "SET", "b", "v")
	s.MustCmd(t, "DEL", "{a}1", "{a}2")
	if _, err := s.Cmd("DEL", "a", "b"); err == nil || !strings.HasPrefix(err.Error(), "CROSSSLOT") {
		t.Errorf("two slots in one command: have %v, want CROSSSLOT", err)
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

// A verdict is a testing.TB that records how it was ended.
type verdict struct {
	testing.TB
	skipped, failed bool
}

func (v *verdict) Helper() {}

func (v *verdict) Skipf(string, ...any) {
	v.skipped = true
	runtime.Goexit()
}

func (v *verdict) Fatal(...any) {
	v.failed = true
	runtime.Goexit()
}

func judge(err error) *verdict {
	v := new(verdict)
	done := make(chan struct{})
	go func() {
		defer close(done)
		giveUp(v, err)
	}()
	<-done
	return v
}

func TestWithoutServer(t *testing.T) {
	t.Setenv("DIBS_REQUIRE_REDIS", "")
	if v := judge(ErrNoServer); !v.skipped {
		t.Error("the test is not skipped")
	}
	if v := judge(errPortTaken); !v.failed {
		t.Error("a server that does not start is no failure")
	}
	t.Setenv("DIBS_REQUIRE_REDIS", "1")
	if v := judge(ErrNoServer); !v.failed {
		t.Error("the test does not fail although a server is required")
	}
}
