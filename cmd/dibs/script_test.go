package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/cmd/dibs/internal/supervise"
	"github.com/dibslock/dibs/internal/test/redistest"
	"github.com/dibslock/dibs/internal/test/sqldrill"
	"github.com/redis/go-redis/v9"
	"github.com/rogpeppe/go-internal/testscript"
	"github.com/spf13/pflag"
)

// TestMain lets the test binary run as dibs, for scripts and for tests that start, stop and kill
// it. With -race, this dibs also has the race detector.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"dibs": main, "as-root": waitAsRoot})
}

// waitAsRoot is the main function for a program that becomes root, which its file must permit, and
// then waits for a file.
func waitAsRoot() {
	if err := syscall.Setreuid(0, 0); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	for {
		if _, err := os.Stat(os.Args[1]); err == nil {
			os.Exit(0)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// TestScripts runs testdata/*.txtar. All scripts share one server, where each has its own
// database: its URL is in DIBS_URL and in URL. There are these commands besides those of
// testscript:
//
//	exits CODE COMMAND…       run a command and want this exit code
//	bg ID COMMAND…            start a command; its output goes to ID.out and ID.err
//	signal NAME ID            send it a signal: INT, TERM, …
//	ends CODE ID              wait until it exits and want this exit code
//	eventually PATTERN FILE   wait until a file matches
//	eventually PATTERN COMMAND…
//	                          wait until the output of a command matches
//	held NAME [flags]         hold a name in the test process, in the store that DIBS_URL
//	                          names now; see lockFlags. Sets FENCE and TOKEN
//	waits NAME [flags]        wait for a name, and hold it when it is granted
//	free NAME [LABEL]         release the name, or stop waiting
//	redis COMMAND…            send a command to the script's database; stdout is the reply
//	redis --lines COMMAND…    the same, with a line for each element of the reply
//	server start|kill|restart|stop|pause|resume ID
//	                          a server for this script; start sets the variable ID to its URL
//	postgres new ID           a database for this script, without tables; sets the variable ID
//	                          to its URL, which leads through a proxy, and ID_AT to the URL
//	                          without scheme and user
//	postgres pause|resume|kill ID
//	                          the proxy forwards nothing, forwards again, refuses connections
//	postgres sql ID STATEMENT send a statement to the database, or with @FILE the text of a file
//	mariadb …                 the same
//	etcd new|pause|resume|kill ID
//	                          the same, with a prefix for this script
//	zookeeper new|pause|resume|kill ID
//	                          the same
//	mariadb client ID FILE FLAG…
//	                          feed a file to the client mariadb
func TestScripts(t *testing.T) {
	server := redistest.Start(t, "--databases", "1000")
	shared := newDatabaseServers()
	t.Cleanup(func() {
		for _, d := range shared {
			if err := d.close(); err != nil {
				t.Error(err)
			}
		}
	})
	var last atomic.Int64
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			url := fmt.Sprintf("%s/%d", server.URL(), last.Add(1))
			return newScriptState(env, url)
		},
		Condition: func(name string) (bool, error) {
			d := shared[name]
			if d == nil {
				return false, fmt.Errorf("unknown condition %s", name)
			}
			return d.installed()
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"exits":      exits,
			"bg":         withState((*scriptState).start),
			"signal":     withState((*scriptState).signal),
			"ends":       withState((*scriptState).ends),
			"eventually": eventuallyMatches,
			"held":       withState((*scriptState).held),
			"names":      withState((*scriptState).names),
			"waits":      withState((*scriptState).waits),
			"free":       withState((*scriptState).free),
			"redis":      withState((*scriptState).redis),
			"server":     withState((*scriptState).server),
			"postgres":   withState(func(w *scriptState, args []string) { w.database(shared["postgres"], args) }),
			"mariadb":    withState(func(w *scriptState, args []string) { w.database(shared["mariadb"], args) }),
			"etcd":       withState(func(w *scriptState, args []string) { w.database(shared["etcd"], args) }),
			"zookeeper":  withState(func(w *scriptState, args []string) { w.database(shared["zookeeper"], args) }),
		},
	})
}

// quorumTTL is the longest TTL on the scripts' quorums.
const quorumTTL = 3 * time.Second

// testTimeout is the time limit for each wait in a test.
const testTimeout = time.Minute

// A scriptState is a script's state besides its files.
type scriptState struct {
	*testscript.TestScript
	env       []string
	rdb       *redis.Client
	clients   map[string]*dibs.Client // by DIBS_URL's value
	closes    []func() error
	running   map[string]*background
	servers   map[string]*redistest.Server
	locksHeld map[string]*testLock        // by name and label
	proxies   map[string]*redistest.Proxy // for the script's databases, by ID
	databases map[string]string           // their names
	hostile   []string                    // held names
}

type background struct {
	cmd  *exec.Cmd
	done chan struct{}
}

// A testLock is a lock, or a wait, for the commands held and waits.
type testLock struct {
	stop  context.CancelFunc
	done  chan struct{} // closed when the wait is over
	lease interface{ Unlock() error }
}

func newScriptState(env *testscript.Env, url string) error {
	options, err := redis.ParseURL(url)
	if err != nil {
		return err
	}
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	// By default the race detector sleeps for a second at each process's end.
	env.Vars = append(env.Vars, "HOST="+host, "URL="+url, "DIBS_URL="+url, "DIBS_PASSWORD=", "DIBS_TIMEOUT=10s", "GORACE=atexit_sleep_ms=0")
	w := &scriptState{
		env: env.Vars, rdb: redis.NewClient(options), clients: make(map[string]*dibs.Client),
		running: make(map[string]*background), servers: make(map[string]*redistest.Server), locksHeld: make(map[string]*testLock),
		proxies: make(map[string]*redistest.Proxy), databases: make(map[string]string),
	}
	env.Values[scriptStateKey{}] = w
	env.Defer(w.end)
	return nil
}

func (w *scriptState) end() {
	for _, r := range w.running {
		_ = r.cmd.Process.Kill() // fails if it already exited
		<-r.done
	}
	for _, c := range w.locksHeld {
		c.stop()
		<-c.done
	}
	for _, f := range w.closes {
		_ = f() // leases may be lost by now
	}
	w.rdb.Close()
	for _, p := range w.proxies {
		p.Close()
	}
	for _, s := range w.servers {
		s.Stop()
	}
}

// locks returns a client for the store in DIBS_URL, opened in dibs' way.
func (w *scriptState) locks() *dibs.Client {
	where := w.Getenv("DIBS_URL")
	if c := w.clients[where]; c != nil {
		return c
	}
	a := newApp(&console{env: environment{"DIBS_URL=" + where, "DIBS_PASSWORD=" + w.Getenv("DIBS_PASSWORD")}}, nil)
	a.stores.timeout = 10 * time.Second
	if strings.Contains(where, " ") {
		a.stores.longestTTL = quorumTTL // a server votes only after it has run for this long
	}
	s, err := a.connect(untilExit)
	w.Check(err)
	w.clients[where], w.closes = s.locks, append(w.closes, s.close)
	return s.locks
}

type scriptStateKey struct{}

func withState(do func(w *scriptState, args []string)) func(ts *testscript.TestScript, neg bool, args []string) {
	return func(ts *testscript.TestScript, neg bool, args []string) {
		if neg {
			ts.Fatalf("this command does not support !")
		}
		w := ts.Value(scriptStateKey{}).(*scriptState)
		w.TestScript = ts
		do(w, args)
	}
}

func exits(ts *testscript.TestScript, neg bool, args []string) {
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	code, err := 0, ts.Exec(args[1], args[2:]...)
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		code, err = supervise.ExitCode(exit.Sys().(syscall.WaitStatus)), nil
	}
	ts.Check(err)
	if neg != (code != want) {
		ts.Fatalf("exit code %d, want %d", code, want)
	}
}

// start starts a command in the background, with the current environment.
func (w *scriptState) start(args []string) {
	id := args[0]
	cmd := exec.Command(args[1], args[2:]...)
	cmd.Dir = w.MkAbs(".")
	for _, pair := range w.env {
		name, _, _ := strings.Cut(pair, "=")
		cmd.Env = append(cmd.Env, name+"="+w.Getenv(name))
	}
	out, err := os.Create(filepath.Join(cmd.Dir, id+".out"))
	w.Check(err)
	defer out.Close()
	errs, err := os.Create(filepath.Join(cmd.Dir, id+".err"))
	w.Check(err)
	defer errs.Close()
	cmd.Stdout, cmd.Stderr = out, errs
	w.Check(cmd.Start())
	r := &background{cmd, make(chan struct{})}
	w.running[id] = r
	go func() {
		_ = cmd.Wait() // ends reads the exit code from its state
		close(r.done)
	}()
}

func (w *scriptState) signal(args []string) {
	w.Check(w.running[args[1]].cmd.Process.Signal(signalNumber(args[0])))
}

func (w *scriptState) ends(args []string) {
	r := w.running[args[1]]
	select {
	case <-r.done:
	case <-time.After(testTimeout):
		w.Fatalf("%s has not exited", args[1])
	}
	for _, stream := range []string{"out", "err"} {
		w.Logf("[%s]\n%s", stream, w.ReadFile(args[1]+"."+stream))
	}
	status := r.cmd.ProcessState.Sys().(syscall.WaitStatus)
	code := status.ExitStatus()
	if status.Signaled() {
		code = supervise.CodeSignal + int(status.Signal())
	}
	if strconv.Itoa(code) != args[0] {
		w.Fatalf("exit code %d, want %s", code, args[0])
	}
}

func eventuallyMatches(ts *testscript.TestScript, neg bool, args []string) {
	pattern, err := regexp.Compile("(?m)" + args[0])
	ts.Check(err)
	read := func() string {
		text, _ := os.ReadFile(ts.MkAbs(args[1])) // it may not exist yet
		return string(text)
	}
	if len(args) > 2 {
		read = func() string {
			_ = ts.Exec(args[1], args[2:]...) // only its output matters
			return ts.ReadFile("stdout") + ts.ReadFile("stderr")
		}
	}
	for end := time.Now().Add(testTimeout); ; time.Sleep(10 * time.Millisecond) {
		text := read()
		if pattern.MatchString(text) != neg {
			return
		}
		if time.Now().After(end) {
			ts.Fatalf("no match of %v in %q:\n%s", pattern, args[1:], text)
		}
	}
}

// A lockSpec holds the flags for the commands held and waits.
type lockSpec struct {
	name, label, token string
	slots, permits     int
	shared             bool
	ttl, minHold       time.Duration
}

func (w *scriptState) lockFlags(args []string) (l lockSpec) {
	f := pflag.NewFlagSet("held", pflag.ContinueOnError)
	f.StringVar(&l.label, "label", "", "")
	f.StringVar(&l.token, "token", "", "the whole token")
	f.IntVar(&l.slots, "slots", 0, "a semaphore")
	f.IntVar(&l.permits, "permits", 1, "")
	f.BoolVar(&l.shared, "shared", false, "a reader")
	f.DurationVar(&l.ttl, "ttl", 30*time.Second, "")
	f.DurationVar(&l.minHold, "min-hold", 0, "")
	w.Check(f.Parse(args))
	l.name = f.Arg(0)
	return l
}

func (l lockSpec) acquire(ctx context.Context, locks *dibs.Client, more ...dibs.Option) (*dibs.Lease, error) {
	options := append(more, dibs.TTL(l.ttl), dibs.Label(l.label), dibs.MinHold(l.minHold))
	if l.token != "" {
		options = append(options, dibs.OwnerToken(l.token))
	}
	switch {
	case l.shared:
		return locks.RWMutex(l.name).Reader().Lock(ctx, options...)
	case l.slots > 0:
		return locks.Semaphore(l.name, l.slots).Permits(l.permits).Lock(ctx, options...)
	}
	return locks.Mutex(l.name).Lock(ctx, options...)
}

func (w *scriptState) held(args []string) {
	l := w.lockFlags(args)
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	locks := w.locks()
	lease, err := l.acquire(ctx, locks)
	for errors.Is(err, dibs.ErrUnavailable) && ctx.Err() == nil {
		lease, err = l.acquire(ctx, locks)
	}
	w.Check(err)
	w.Setenv("FENCE", strconv.FormatUint(lease.Fence(), 10))
	w.Setenv("TOKEN", string(lease.Token()))
	c := &testLock{stop: cancel, done: make(chan struct{}), lease: lease}
	close(c.done)
	w.locksHeld[l.name+" "+l.label] = c
}

// names holds a number of hostile names. With "listed" it checks whether ls --json printed them,
// and run finds some already held.
func (w *scriptState) names(args []string) {
	if args[0] != "listed" {
		n, err := strconv.Atoi(args[0])
		w.Check(err)
		for _, name := range sqldrill.HostileNames(n) {
			l, err := w.locks().Mutex(name).Lock(context.Background(), dibs.NoRenew(), dibs.TTL(time.Hour))
			w.Check(err)
			w.hostile, w.closes = append(w.hostile, name), append(w.closes, l.Unlock)
		}
		return
	}
	var listed []string
	for line := range strings.Lines(w.ReadFile("stdout")) {
		var state struct{ Name string }
		w.Check(json.Unmarshal([]byte(line), &state))
		listed = append(listed, state.Name)
	}
	if have, want := slices.Sorted(slices.Values(listed)), slices.Sorted(slices.Values(w.hostile)); !slices.Equal(have, want) {
		w.Fatalf("listed %d names, want %d", len(have), len(want))
	}
	for _, name := range w.hostile[:40] {
		if strings.ContainsAny(name, "\x00,") || name[0] == '-' { // no argument, several names, or a flag
			continue
		}
		var exit *exec.ExitError
		if err := w.Exec("dibs", "run", "-n", name, "--", "true"); !errors.As(err, &exit) || exit.ExitCode() != 75 {
			w.Fatalf("run %q: %v, want exit code 75", name, err)
		}
	}
}

// waits returns when the request is in the queue.
func (w *scriptState) waits(args []string) {
	l := w.lockFlags(args)
	ctx, cancel := context.WithCancel(context.Background())
	c := &testLock{stop: cancel, done: make(chan struct{})}
	queued := make(chan struct{})
	hooks, locks := dibs.Hooks{Queued: func(context.Context, dibs.Queued) { close(queued) }}, w.locks()
	go func() {
		defer close(c.done)
		if lease, err := l.acquire(ctx, locks, dibs.Observe(hooks)); err == nil {
			c.lease = lease
		}
	}()
	select {
	case <-queued:
	case <-c.done:
		w.Fatalf("%s does not wait", l.name)
	case <-time.After(testTimeout):
		w.Fatalf("%s is not in the queue", l.name)
	}
	w.locksHeld[l.name+" "+l.label] = c
}

func (w *scriptState) free(args []string) {
	key := strings.Join(append(args, ""), " ")
	if len(args) > 1 {
		key = args[0] + " " + args[1]
	}
	c := w.locksHeld[key]
	if c == nil {
		w.Fatalf("no %q among %q", key, slices.Collect(maps.Keys(w.locksHeld)))
	}
	select {
	case <-c.done:
	default:
		c.stop()
		<-c.done
	}
	if c.lease == nil {
		return
	}
	if err := c.lease.Unlock(); err != nil && !errors.Is(err, dibs.ErrLost) {
		w.Fatalf("%v", err)
	}
}

func (w *scriptState) redis(args []string) {
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	lines := args[0] == "--lines"
	var words []any
	for _, arg := range args {
		if arg != "--lines" {
			words = append(words, arg)
		}
	}
	reply, err := w.rdb.Do(ctx, words...).Result()
	if !errors.Is(err, redis.Nil) {
		w.Check(err)
	}
	list, _ := reply.([]any)
	if !lines {
		list = []any{reply}
	}
	for _, one := range list {
		fmt.Fprintln(w.Stdout(), one)
	}
}

func (w *scriptState) server(args []string) {
	do, id := args[0], args[1]
	s := w.servers[id]
	switch do {
	case "start":
		s, err := redistest.StartServer(w.mkdir(id), args[2:]...)
		w.Check(err)
		w.servers[id] = s
		w.Setenv(id, s.URL())
	case "kill":
		s.Kill()
	case "stop":
		s.Stop()
	case "restart":
		w.Check(s.Restart())
	case "pause":
		w.Check(s.Pause())
	case "resume":
		w.Check(s.Resume())
	default:
		w.Fatalf("unknown command: server %s", do)
	}
}

func (w *scriptState) mkdir(name string) string {
	dir := w.MkAbs(".server-" + name)
	w.Check(os.Mkdir(dir, 0o755))
	return dir
}
