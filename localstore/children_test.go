//go:build unix

package localstore

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/test/carried"
	"github.com/dibslock/dibs/kvstore"
)

// The tests start this binary again, as other processes on the same file.

const roleVar, fileVar = "DIBS_LOCALSTORE_ROLE", "DIBS_LOCALSTORE_FILE"

func TestMain(m *testing.M) {
	role := childRoles[os.Getenv(roleVar)]
	if role == nil {
		os.Exit(m.Run())
	}
	if err := role(os.Getenv(fileVar), bufio.NewReader(os.Stdin)); err != nil {
		fmt.Println("failed:", err)
		os.Exit(1)
	}
	fmt.Println("done")
}

// childRoles are the child processes' programs. A program reads commands line by line.
var childRoles = map[string]func(path string, in *bufio.Reader) error{
	"lockMany":          lockMany,
	"queueOnce":         queueOnce,
	"holdUntilReleased": holdUntilReleased,
	"holdUntilLost":     holdUntilLost,
	"tryOnce":           tryOnce,
	"churn":             churn,
	"stopInTransaction": stopInTransaction,
	"writeOnce":         writeOnce,
}

// A child is a process running a childRole.
type child struct {
	t   *testing.T
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner

	fields []string // from holdUntilReleased: fence, token, and the started process's PID, or 0
}

func startChild(t *testing.T, role, path string, adjust ...func(*exec.Cmd)) *child {
	t.Helper()
	c := &child{t: t, cmd: exec.Command(os.Args[0])}
	c.cmd.Env = append(os.Environ(), roleVar+"="+role, fileVar+"="+path)
	c.cmd.Stderr = os.Stderr
	for _, f := range adjust {
		f(c.cmd)
	}
	in, err := c.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.in, c.out = in, bufio.NewScanner(out)
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.kill)
	return c
}

// writeLine writes a line to the child.
func (c *child) writeLine(line string) {
	c.t.Helper()
	if _, err := fmt.Fprintln(c.in, line); err != nil {
		c.t.Error(err)
	}
}

// readLine waits for a line from the child with the prefix want, and returns the rest.
func (c *child) readLine(want string) string {
	c.t.Helper()
	if !c.out.Scan() {
		c.t.Fatalf("a child ended (%v), want %q", c.out.Err(), want)
	}
	rest, ok := strings.CutPrefix(c.out.Text(), want)
	if !ok {
		c.t.Fatalf("the child wrote %q, want %q", c.out.Text(), want)
	}
	return rest
}

// kill kills the child at once.
func (c *child) kill() {
	_ = c.cmd.Process.Kill()
	_ = c.cmd.Wait()
}

func openAt(t *testing.T, path string) *Store {
	t.Helper()
	s, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func newFile(t *testing.T) string { return filepath.Join(t.TempDir(), "state", "locks.db") }

// generousTimeout allows for a busy machine.
func generousTimeout() dibs.Option { return dibs.Timeout(10 * time.Second) }

func client(t *testing.T, s *Store, options ...dibs.Option) *dibs.Client {
	c := dibs.New(s, append([]dibs.Option{generousTimeout()}, options...)...)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

const children, rounds = 24, 15

// lockMany locks a name many times and records each time.
func lockMany(path string, in *bufio.Reader) error {
	if _, err := in.ReadString('\n'); err != nil {
		return err
	}
	s, err := Open(path) // all children at once; the first ones create the file
	if err != nil {
		return err
	}
	c := dibs.New(s, generousTimeout())
	for range rounds {
		err := c.Mutex("n").Do(context.Background(), func(ctx context.Context) error {
			return appendHistory(filepath.Dir(path), carried.Fence(ctx))
		}, dibs.Wait(time.Minute))
		if err != nil {
			return err
		}
	}
	return errors.Join(c.Close(), s.Close())
}

// appendHistory fails if another process holds the lock, and adds a line to the history.
func appendHistory(dir string, mark uint64) error {
	inside, err := os.OpenFile(filepath.Join(dir, "inside"), os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("two holders: %w", err)
	}
	history, err := os.OpenFile(filepath.Join(dir, "history"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(history, mark)
	return errors.Join(err, history.Close(), inside.Close(), os.Remove(inside.Name()))
}

func history(t *testing.T, path string) (all []uint64) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(filepath.Dir(path), "history"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.FieldsSeq(string(text)) {
		n, err := strconv.ParseUint(line, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, n)
	}
	return all
}

// Many processes create the file together, and lock the same name. Each should get it in turn, as
// often as it wants.
func TestCrowd(t *testing.T) {
	t.Parallel()
	path := newFile(t)
	var all []*child
	for range children {
		all = append(all, startChild(t, "lockMany", path))
	}
	for _, c := range all {
		c.writeLine("go")
	}
	for _, c := range all {
		c.readLine("done")
	}
	fences := history(t, path)
	if len(fences) != children*rounds {
		t.Errorf("locked %d times, want %d", len(fences), children*rounds)
	}
	for i := range fences[1:] {
		if fences[i+1] <= fences[i] {
			t.Fatalf("fence %d after %d", fences[i+1], fences[i])
		}
	}
	checkIntegrity(t, path)
}

// checkIntegrity checks the file for corruption.
func checkIntegrity(t *testing.T, path string) {
	t.Helper()
	s := openAt(t, path)
	var verdict string
	if err := s.file.conn.QueryRowContext(t.Context(), "pragma integrity_check").Scan(&verdict); err != nil || verdict != "ok" {
		t.Errorf("integrity check: %s, %v", verdict, err)
	}
}

// queueOnce reports when it is queued, and records its number when it is served.
func queueOnce(path string, in *bufio.Reader) error {
	line, err := in.ReadString('\n')
	if err != nil {
		return err
	}
	number, err := strconv.ParseUint(strings.TrimSpace(line), 10, 64)
	if err != nil {
		return err
	}
	s, err := Open(path)
	if err != nil {
		return err
	}
	hooks := dibs.Hooks{Queued: func(context.Context, dibs.Queued) { fmt.Println("queued") }}
	c := dibs.New(s, dibs.Observe(hooks), generousTimeout())
	lease, err := c.Mutex("n").Lock(context.Background(), dibs.Wait(time.Minute))
	if err != nil {
		return err
	}
	return errors.Join(appendHistory(filepath.Dir(path), number), lease.Unlock(), c.Close(), s.Close())
}

// Processes should be served in the order of their requests.
func TestOrder(t *testing.T) {
	t.Parallel()
	path := newFile(t)
	c := client(t, openAt(t, path))
	lease, err := c.Mutex("n").Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var all []*child
	for range children {
		all = append(all, startChild(t, "queueOnce", path))
	}
	for i, c := range all {
		c.writeLine(strconv.Itoa(i))
		c.readLine("queued")
	}
	if err := lease.Unlock(); err != nil {
		t.Fatal(err)
	}
	for _, c := range all {
		c.readLine("done")
	}
	for i, mark := range history(t, path) {
		if mark != uint64(i) {
			t.Fatalf("served in the order %d", history(t, path))
		}
	}
}

// holdUntilReleased holds the lock as its first line says, until it is killed or reads
// another line.
func holdUntilReleased(path string, in *bufio.Reader) error {
	line, err := in.ReadString('\n')
	if err != nil {
		return err
	}
	ttl, how, _ := strings.Cut(strings.TrimSpace(line), " ")
	d, err := time.ParseDuration(ttl)
	if err != nil {
		return err
	}
	lock := []dibs.Option{dibs.TTL(d)}
	var options []Option
	switch how {
	case "outlives":
		options = append(options, KeepUntilTTL())
	case "minimum":
		lock = append(lock, dibs.MinHold(d))
	}
	s, err := Open(path, options...)
	if err != nil {
		return err
	}
	lease, err := dibs.New(s).Mutex("n").Lock(context.Background(), lock...)
	if err != nil {
		return err
	}
	started := 0
	if how == "starts a child" {
		alive, err := s.LivenessFile()
		if err != nil {
			return err
		}
		sleep := exec.Command("sleep", "1000")
		sleep.ExtraFiles = []*os.File{alive}
		if err := sleep.Start(); err != nil {
			return err
		}
		started = sleep.Process.Pid
	}
	fmt.Println("holds", lease.Fence(), string(lease.Token()), started)
	if _, err := in.ReadString('\n'); err != nil {
		return err
	}
	err = lease.Unlock()
	fmt.Println("released")
	_, _ = in.ReadString('\n')
	return err
}

// startHolder starts a holdUntilReleased, and returns when it holds the lock.
func startHolder(t *testing.T, path, how string) *child {
	t.Helper()
	c := startChild(t, "holdUntilReleased", path)
	c.writeLine(how)
	c.fields = strings.Fields(c.readLine("holds"))
	return c
}

// A killed process's lease ends at once, and waiters are notified. A stopped process's lease does
// not end.
func TestHolderIsKilled(t *testing.T) {
	t.Parallel()
	path := newFile(t)
	c := client(t, openAt(t, path))
	killed := startHolder(t, path, "1h")
	fence, err := strconv.ParseUint(killed.fields[0], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	must(t, killed.cmd.Process.Signal(syscall.SIGSTOP))
	if _, err := c.Mutex("n").Lock(t.Context(), dibs.Wait(300*time.Millisecond)); !errors.Is(err, dibs.ErrBusy) {
		t.Fatalf("while the holder is stopped: %v, want ErrBusy", err)
	}
	type result struct {
		lease *dibs.Lease
		err   error
	}
	waits, got := make(chan struct{}, 1), make(chan result, 1)
	hooks := dibs.Hooks{Queued: func(context.Context, dibs.Queued) { waits <- struct{}{} }}
	go func() {
		lease, err := c.Mutex("n").Lock(t.Context(), dibs.Wait(time.Minute), dibs.Observe(hooks))
		got <- result{lease, err}
	}()
	<-waits
	begin := time.Now()
	killed.kill()
	r := <-got
	if r.err != nil {
		t.Fatal(r.err)
	}
	t.Logf("acquired %v after the kill", time.Since(begin))
	if r.lease.Fence() <= fence {
		t.Errorf("fence %d after %d", r.lease.Fence(), fence)
	}
}

// A lease survives its process if Outlive is set, if another process works under it, or if its
// owner's state is not visible.
func TestOutlivesItsProcess(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		how    string
		before func(t *testing.T, c *child, path string)
	}{
		"KeepUntilTTL":         {"1h outlives", nil},
		"MinHold":              {"1h minimum", nil},
		"inherited by a child": {"1h starts a child", nil},
		"extended by another process": {"1h", func(t *testing.T, c *child, path string) {
			h := driver.ExtendRequest{Name: "n", Token: c.fields[1], TTL: time.Hour}
			must(t, openAt(t, path).Extend(t.Context(), []driver.ExtendRequest{h})[0])
		}},
		"liveness file removed": {"1h", func(t *testing.T, c *child, path string) { removeAlive(t, path) }},
		"liveness file replaced": {"1h", func(t *testing.T, c *child, path string) {
			removeAlive(t, path)
			lockAndRelease(t, openAt(t, path), "m", 0)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := newFile(t)
			killed := startHolder(t, path, test.how)
			if test.before != nil {
				test.before(t, killed, path)
			}
			killed.kill()
			c := client(t, openAt(t, path))
			if _, err := c.Mutex("n").Lock(t.Context(), dibs.Wait(500*time.Millisecond)); !errors.Is(err, dibs.ErrBusy) {
				t.Fatalf("want it held: %v", err)
			}
			other, err := strconv.Atoi(killed.fields[2])
			if err != nil || other == 0 {
				return
			}
			must(t, syscall.Kill(other, syscall.SIGKILL))
			if _, err := c.Mutex("n").Lock(t.Context(), dibs.Wait(20*time.Second)); err != nil {
				t.Errorf("after all processes were killed: %v", err)
			}
		})
	}
}

// removeAlive removes the liveness file while it is open, so its inode is not reused.
func removeAlive(t *testing.T, path string) {
	t.Helper()
	f, err := os.Open(path + ".alive")
	must(t, err)
	t.Cleanup(func() { f.Close() })
	must(t, os.Remove(f.Name()))
}

// Closing a store must not end its leases while the process is alive.
func TestClosedWhileHeld(t *testing.T) {
	t.Parallel()
	path := newFile(t)
	s := openAt(t, path)
	_, err := s.Acquire(t.Context(), requestOn("n", "holder"))
	must(t, err)
	must(t, s.Close())
	if st := state(t, openAt(t, path), "n"); st.Holding != 1 {
		t.Errorf("%+v", st)
	}
}

// A killed waiter is skipped at once, and a hand-off to it ends at once.
func TestWaiterIsKilled(t *testing.T) {
	t.Parallel()
	path := newFile(t)
	c := client(t, openAt(t, path))
	lease, err := c.Mutex("n").Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	killed := startChild(t, "queueOnce", path)
	killed.writeLine("0")
	killed.readLine("queued")
	killed.kill()
	if err := lease.Unlock(); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	if _, err = c.Mutex("n").Lock(t.Context()); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begin); took > 3*driver.WaiterTTL { // much less than the killed process's TTL
		t.Errorf("served after %v", took)
	}
}

// churn does as many operations as it can, on its own names and a shared name.
func churn(path string, _ *bufio.Reader) error {
	s, err := Open(path)
	if err != nil {
		return err
	}
	fmt.Println("running")
	for i := uint64(1); ; i++ {
		me := fmt.Sprintf("mill:%d:%d", os.Getpid(), i)
		request := driver.AcquireRequest{
			Name: "all", With: []string{fmt.Sprint("own:", i%7), fmt.Sprint("more:", i%5)}, Token: me, Client: "mill",
			TTL: 100 * time.Millisecond, Weight: 1, Limit: 1, Queue: i%3 == 0,
		}
		answer, err := s.Acquire(context.Background(), request)
		if err == nil && answer.Held && i%2 == 0 {
			err = s.Cancel(context.Background(), request)
		}
		if err != nil {
			return err
		}
	}
}

// Processes killed at any instant leave a working file and no half-finished operation.
func TestKilledAnywhere(t *testing.T) {
	t.Parallel()
	const kills = 15
	path := newFile(t)
	s := openAt(t, path)
	last := uint64(0)
	for i := range kills {
		a, b := startChild(t, "churn", path), startChild(t, "churn", path)
		a.readLine("running")
		b.readLine("running")
		// A different number of operations each time, so the kills hit different instants.
		for range i {
			last = lockAndRelease(t, s, "mine", last)
		}
		a.kill()
		last = lockAndRelease(t, s, "mine", last)
		b.kill()
		last = lockAndRelease(t, s, "mine", last)
		wantWholeMultiLocks(t, s)
	}
	checkIntegrity(t, path)
	for _, name := range []string{"all", "own:0", "more:0"} { // all leases end
		if _, err := client(t, s).Mutex(name).Lock(t.Context(), dibs.Wait(20*time.Second)); err != nil {
			t.Error(err)
		}
	}
}

// lockAndRelease acquires a name without contention, and releases it.
func lockAndRelease(t *testing.T, s *Store, name string, last uint64) uint64 {
	t.Helper()
	r := requestOn(name, "me")
	answer, err := s.Acquire(t.Context(), r)
	if err != nil || !answer.Held || answer.Fence <= last {
		t.Fatalf("%+v, %v after fence %d", answer, err, last)
	}
	if held, err := s.Release(t.Context(), driver.ReleaseRequest{Name: name, Token: r.Token, Until: r.Until}); !held || err != nil {
		t.Fatalf("release: %v, %v", held, err)
	}
	return answer.Fence
}

func requestOn(name, token string) driver.AcquireRequest {
	return driver.AcquireRequest{
		Name: name, Token: token, Client: "c", TTL: time.Minute, Weight: 1, Limit: 1, Queue: true, Until: time.Now().Add(20 * time.Second),
	}
}

// wantWholeMultiLocks checks that each multi-lock holds all its names.
func wantWholeMultiLocks(t *testing.T, s *Store) {
	t.Helper()
	err := s.file.read(t.Context(), time.Now().Add(20*time.Second), nil, func(l *kvstore.Table, now kvstore.Now) error {
		holds := make(map[string]int)
		for _, e := range l.Names {
			for _, h := range e.Holders {
				if now.At < h.Expires { // otherwise some of an expired lease's names may already be removed
					holds[h.Token]++
				}
			}
		}
		for token, n := range holds {
			if n != 3 {
				t.Errorf("%s holds %d names, want 3", token, n)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// stopInTransaction stops within a transaction.
func stopInTransaction(path string, in *bufio.Reader) error {
	s, err := Open(path)
	if err != nil {
		return err
	}
	_, err = s.file.change(context.Background(), time.Now().Add(time.Minute), []string{"n", "m"}, func(l *kvstore.Table, now kvstore.Now) ([]kvstore.Notification, error) {
		for _, name := range []string{"n", "m"} {
			if reply, _, _ := l.Acquire(requestOn(name, "killed"), now); !reply.Held {
				return nil, fmt.Errorf("%q is held: %+v", name, reply)
			}
		}
		if err := s.file.save(l, nil, now.At); err != nil {
			return nil, err
		}
		fmt.Println("in the middle")
		_, err := in.ReadString('\n')
		return nil, err
	})
	return err
}

// While a process hangs during an operation, the others should wait until their deadlines. If it is
// killed, its operation should have no effect.
func TestKilledInTheMiddle(t *testing.T) {
	t.Parallel()
	path := newFile(t)
	s := openAt(t, path)
	hangs := startChild(t, "stopInTransaction", path)
	hangs.readLine("in the middle")

	const limit = 200 * time.Millisecond
	late := requestOn("n", "late")
	for what, ask := range map[string]func() error{
		"acquire": func() error {
			late.Until = time.Now().Add(limit)
			_, err := s.Acquire(t.Context(), late)
			return err
		},
		"release": func() error {
			_, err := s.Release(t.Context(), driver.ReleaseRequest{Name: "n", Token: "me", Until: time.Now().Add(limit)})
			return err
		},
		"cancel": func() error {
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			left := late
			left.Until = time.Now().Add(limit)
			return s.Cancel(ctx, left)
		},
		"extend": func() error { // without its own deadline
			return s.Extend(t.Context(), []driver.ExtendRequest{{Name: "n", Token: "me", TTL: time.Minute}})[0]
		},
	} {
		begin := time.Now()
		err := ask()
		var u *driver.UnavailableError
		if took := time.Since(begin); !errors.As(err, &u) || u.Refused || took < limit || took > 5*time.Second {
			t.Errorf("%s: %v after %v, want ErrUnavailable after the deadline", what, err, took)
		}
	}
	if _, err := s.Inspect(t.Context(), "n"); err != nil {
		t.Errorf("inspect must not wait: %v", err)
	}
	if _, err := Open(path); err != nil {
		t.Errorf("open must not wait: %v", err)
	}

	served := make(chan error, 1)
	go func() {
		answer, err := s.Acquire(t.Context(), requestOn("n", "me"))
		if err == nil && !answer.Held {
			err = fmt.Errorf("%+v, want held", answer)
		}
		served <- err
	}()
	hangs.kill()
	if err := <-served; err != nil {
		t.Error(err)
	}
	lockAndRelease(t, s, "m", 0)
	checkIntegrity(t, path)
}

// writeOnce acquires a name once, and reports the result.
func writeOnce(path string, _ *bufio.Reader) error {
	s, err := Open(path)
	if err != nil {
		return err
	}
	_, err = s.Acquire(context.Background(), requestOn("n", "child"))
	return errors.Join(err, s.Close())
}

// asUnprivileged makes a child run as a user without permissions, if this process is
// root.
func asUnprivileged(t *testing.T) func(*exec.Cmd) {
	if os.Geteuid() != 0 {
		return func(*exec.Cmd) {}
	}
	return func(c *exec.Cmd) {
		c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	}
}
