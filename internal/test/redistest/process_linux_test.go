package redistest

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// childEnv names the directory for the server of a child process, and makes this test
// binary a child.
const childEnv = "REDISTEST_CHILD_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childEnv); dir != "" {
		child(dir)
		return
	}
	os.Exit(m.Run())
}

// child starts a server and waits until it is killed.
func child(dir string) {
	s, err := StartServer(dir)
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(s.Addr())
	select {}
}

func TestServerDiesWithAKilledParent(t *testing.T) {
	Start(t) // skips without a server
	parent := exec.Command(os.Args[0])
	parent.Env = append(os.Environ(), childEnv+"="+t.TempDir())
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = parent.Process.Kill()
		_ = parent.Wait()
	}()
	addr, err := bufio.NewReader(out).ReadString('\n')
	addr = strings.TrimSpace(addr)
	if err != nil || !answers(addr) {
		t.Fatalf("the child's server at %q does not reply: %v", addr, err)
	}
	_ = parent.Process.Kill()
	eventually(t, "the server is gone", func() bool { return !answers(addr) })
}

func answers(addr string) bool {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return false
	}
	conn.Close()
	return true
}
