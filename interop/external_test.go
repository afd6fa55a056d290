package interop

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	maxLine      = 4096     // the protocol's limit, in bytes
	replyLimit   = patience // for a reply, beyond the request's own waiting time
	stderrToKeep = 4096     // the last bytes, which are in the error
)

var (
	// errUnreported is the error from extend or unlock if the library does not report whether the
	// lock was still held.
	errUnreported = errors.New("the library does not report it")
	// errUnsupported is the error from extend or force if the library lacks this function.
	errUnsupported = errors.New("the library does not support it")
)

// An external is a driver's process: a library in another language. drivers/README.md describes the
// protocol. It is safe for concurrent use.
type external struct {
	limit    time.Duration // for a reply
	process  *os.Process
	requests *os.File // the process's standard input

	mu      sync.Mutex // also serialises the writes to requests
	last    int        // the last request's number
	replies map[int]chan string

	ended chan struct{} // closed when the process ends
	err   error         // why; set before ended is closed
}

// startExternal starts a driver, and kills it when the test ends.
func startExternal(t *testing.T, dir string, command ...string) *external {
	t.Helper()
	stdin, requests, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	stderr := new(tail)
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Dir, cmd.Stdin, cmd.Stderr = dir, stdin, stderr
	cmd.WaitDelay = time.Second // a child of the driver may have inherited its standard error
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	err = cmd.Start()
	stdin.Close()
	if err != nil {
		requests.Close()
		t.Fatal(err)
	}
	e := &external{
		limit: replyLimit, process: cmd.Process, requests: requests,
		replies: make(map[int]chan string), ended: make(chan struct{}),
	}
	go func() {
		err := e.read(bufio.NewScanner(stdout))
		e.kill()
		if exit := cmd.Wait(); err == nil {
			err = fmt.Errorf("the driver has ended: %w", exit)
		}
		e.err = fmt.Errorf("%w\nits standard error: %s", err, stderr)
		close(e.ended)
	}()
	t.Cleanup(func() {
		e.kill()
		<-e.ended
		requests.Close()
	})
	return e
}

// kill ends the process; further calls do nothing.
func (e *external) kill() { _ = e.process.Kill() }

// read passes replies to the requests until the process ends or breaks the protocol.
func (e *external) read(lines *bufio.Scanner) error {
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		number, reply, _ := strings.Cut(lines.Text(), " ")
		if !e.deliver(number, reply) {
			return fmt.Errorf("the driver has sent %q, which replies to no request", lines.Text())
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read the replies of the driver: %w", err)
	}
	return nil
}

func (e *external) deliver(number, reply string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	n, err := strconv.Atoi(number)
	waiting, ok := e.replies[n]
	if err != nil || !ok {
		return false
	}
	delete(e.replies, n)
	waiting <- reply
	return true
}

// request sends a request and returns the reply's first word as the outcome, and the other words. A
// driver without a timely reply is killed. The time is the limit plus extra.
func (e *external) request(ctx context.Context, extra time.Duration, words ...any) (outcome, rest string, err error) {
	request := strings.TrimSuffix(fmt.Sprintln(words...), "\n")
	deadline := time.Now().Add(e.limit + extra)
	reply, err := e.send(request, deadline)
	if err != nil {
		e.kill()
		<-e.ended
		return "", "", fmt.Errorf("%s: %w: %w", request, err, e.err)
	}
	timer := time.NewTimer(time.Until(deadline))
	defer timer.Stop()
	select {
	case text := <-reply:
		outcome, rest, _ = strings.Cut(text, " ")
		if outcome == "error" {
			return "", "", fmt.Errorf("%s: %s", request, rest)
		}
		return outcome, rest, nil
	case <-e.ended:
		return "", "", fmt.Errorf("%s: %w", request, e.err)
	case <-ctx.Done():
		return "", "", fmt.Errorf("%s: %w", request, context.Cause(ctx))
	case <-timer.C:
		e.kill()
		<-e.ended
		return "", "", fmt.Errorf("%s: no reply within %v: %w", request, e.limit+extra, e.err)
	}
}

func (e *external) send(request string, deadline time.Time) (<-chan string, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.last++
	reply := make(chan string, 1)
	e.replies[e.last] = reply
	line := fmt.Sprintf("%d %s\n", e.last, request)
	if len(line) > maxLine {
		return nil, fmt.Errorf("a request of %d bytes, the limit is %d", len(line), maxLine)
	}
	if err := e.requests.SetWriteDeadline(deadline); err != nil {
		return nil, err
	}
	_, err := e.requests.WriteString(line)
	return reply, err
}

// A description is a driver's report about its library.
type description struct {
	key     string // the lock key for the requested name
	version string // the installed version
	runtime string // the language's version
}

func (e *external) describe(ctx context.Context, name string) (description, error) {
	_, rest, err := e.request(ctx, 0, "describe", name)
	words := strings.SplitN(rest, " ", 3)
	if err == nil && len(words) != 3 {
		err = fmt.Errorf("describe: reply %q, want KEY VERSION RUNTIME", rest)
	}
	if err != nil {
		return description{}, err
	}
	return description{words[0], words[1], words[2]}, nil
}

func (e *external) try(ctx context.Context, name string, ttl time.Duration) (lock, error) {
	return e.acquire(ctx, 0, "try", name, ttl.Milliseconds())
}

// lock waits until ctx's deadline, or for patience.
func (e *external) lock(ctx context.Context, name string, ttl time.Duration) (lock, error) {
	wait := patience
	if deadline, ok := ctx.Deadline(); ok {
		wait = time.Until(deadline)
	}
	return e.acquire(ctx, wait, "lock", name, ttl.Milliseconds(), wait.Milliseconds())
}

func (e *external) acquire(ctx context.Context, wait time.Duration, words ...any) (lock, error) {
	outcome, rest, err := e.request(ctx, wait, words...)
	if err != nil {
		return nil, err
	}
	handle, value, _ := strings.Cut(rest, " ")
	switch outcome {
	case "ok":
		token, err := url.PathUnescape(value)
		return externalLock{e, handle, token}, err
	case "busy":
		return nil, errHeld
	}
	return nil, fmt.Errorf("%v: reply %q, want ok or busy", words, outcome)
}

func (e *external) hammer(ctx context.Context, name string, l load) (result, error) {
	_, rest, err := e.request(ctx, l.long, "hammer", name, l.counter, l.workers, int(l.long.Seconds()),
		l.ttl.Milliseconds(), l.work.Milliseconds(), l.pause.Milliseconds())
	if err != nil {
		return result{}, err
	}
	var (
		r  result
		ms int64
	)
	figures, failure := cutWords(rest, 5)
	if _, err := fmt.Sscanf(figures, "%d %d %d %d %d", &r.turns, &r.least, &r.overlaps, &ms, &r.failures); err != nil {
		return result{}, fmt.Errorf("hammer: reply %q, want TURNS LEAST OVERLAPS LONGEST FAILURES: %w", rest, err)
	}
	r.longest, r.failure = time.Duration(ms)*time.Millisecond, failure
	return r, nil
}

// cutWords cuts a text after n words.
func cutWords(text string, n int) (words, rest string) {
	all := strings.SplitN(text, " ", n+1)
	if len(all) > n {
		rest = all[n]
	}
	return strings.Join(all[:min(n, len(all))], " "), rest
}

// force releases any owner's lock, through the library.
func (e *external) force(ctx context.Context, name string) (bool, error) {
	return e.held(ctx, "force", name)
}

// An externalLock is a lock held by a driver's process.
type externalLock struct {
	*external
	handle, token string
}

func (l externalLock) value() string { return l.token }

func (l externalLock) extend(ctx context.Context, ttl time.Duration) (bool, error) {
	return l.held(ctx, "extend", l.handle, ttl.Milliseconds())
}

func (l externalLock) unlock(ctx context.Context) (bool, error) {
	return l.held(ctx, "unlock", l.handle)
}

// held returns whether a lock was still held when the request changed it.
func (e *external) held(ctx context.Context, words ...any) (bool, error) {
	outcome, _, err := e.request(ctx, 0, words...)
	switch {
	case err != nil:
		return false, err
	case outcome == "ok":
		return true, nil
	case outcome == "lost":
		return false, nil
	case outcome == "unreported":
		return false, errUnreported
	case outcome == "unsupported":
		return false, errUnsupported
	}
	return false, fmt.Errorf("%v: reply %q, want ok, lost, unreported or unsupported", words, outcome)
}

// A tail keeps the last bytes written to it.
type tail struct {
	mu   sync.Mutex
	text []byte
}

func (w *tail) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.text = append(w.text, p...)
	if more := len(w.text) - stderrToKeep; more > 0 {
		w.text = bytes.Clone(w.text[more:])
	}
	return len(p), nil
}

func (w *tail) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return string(w.text)
}

// If a driver fails, its requests fail with its standard error.
func TestExternalDriverFails(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ script, want string }{
		"dies":           {"read line; echo no memory >&2; exit 3", "no memory"},
		"hangs":          {"read line; echo deadlock >&2; exec sleep 1000", "deadlock"},
		"no reply":       {"read line; echo 7 ok; exec sleep 1000", "replies to no request"},
		"no number":      {"read line; echo hello; exec sleep 1000", "replies to no request"},
		"long line":      {"read line; head -c 5000 /dev/zero; exec sleep 1000", "too long"},
		"library error":  {"read line; echo 1 error no quorum; exec sleep 1000", "try order:42 1000: no quorum"},
		"unknown reply":  {"read line; echo 1 perhaps; exec sleep 1000", "perhaps"},
		"reads no input": {"exec sleep 1000", "no reply"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := startExternal(t, "", "sh", "-c", c.script)
			if strings.Contains(c.script, "deadlock") || name == "reads no input" {
				e.limit = 300 * time.Millisecond
			}
			_, err := e.try(t.Context(), key, time.Second)
			if err == nil || errors.Is(err, errHeld) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
			select {
			case <-e.ended:
				if _, err := e.try(t.Context(), key, time.Second); err == nil || !strings.Contains(err.Error(), "standard error") {
					t.Errorf("after the end of the driver: error %v, want its standard error", err)
				}
			default: // the driver runs on: only this request failed
			}
		})
	}
}

// Replies in any order should find their requests.
func TestExternalReplies(t *testing.T) {
	t.Parallel()
	e := startExternal(t, "", "sh", "-c", `read one; read two; n=${two%% *}; echo $n ok $two; n=${one%% *}; echo $n ok $one; read end`)
	var group sync.WaitGroup
	for _, name := range []string{"a", "b"} {
		group.Go(func() {
			l, err := e.try(t.Context(), name, time.Second)
			if err != nil {
				t.Error(err)
				return
			}
			if want := "try " + name + " 1000"; l.value() != want {
				t.Errorf("value %q, want %q", l.value(), want)
			}
		})
	}
	group.Wait()
}

// A request ends with its context, and a late reply to it does no harm.
func TestExternalRequestIsCancelled(t *testing.T) {
	t.Parallel()
	e := startExternal(t, "", "sh", "-c", `read one; read two; echo 1 busy; echo 2 busy; read end`)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := e.try(ctx, key, time.Second); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v, want the end of the context", err)
	}
	_, err := e.try(t.Context(), key, time.Second)
	wantHeld(t, "the next request", err)
}
