//go:build unix

package dibshttp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/contrib/dibshttp"
	"github.com/dibslock/dibs/goredisstore"
	"github.com/dibslock/dibs/goredisstore/redisurl"
	"github.com/dibslock/dibs/internal/test/childtest"
	"github.com/dibslock/dibs/internal/test/redistest"
	"github.com/dibslock/dibs/internal/test/servicetest"
)

func TestMain(m *testing.M) {
	childtest.Main(m, map[string]childtest.Role{"serve": serveRole})
}

// crashTTL is how long the store keeps a killed or stopped process's lock.
const crashTTL = 3 * time.Second

// serveRole is a server process, with its locks on a Redis. It prints its URL. A request with the
// header Late runs until /finish, and then writes a success: at once, or after its context ends.
func serveRole(out io.Writer, args []string) error {
	url, err := redisurl.Parse(args[0])
	if err != nil {
		return err
	}
	rdb, err := url.Open()
	if err != nil {
		return err
	}
	defer rdb.Close()
	locks := dibs.New(goredisstore.New(rdb), dibs.TTL(crashTTL), dibs.Wait(0))
	defer locks.Close()

	finish := make(chan struct{})
	mux := http.NewServeMux()
	mux.HandleFunc("POST /finish", func(http.ResponseWriter, *http.Request) { close(finish) })
	mux.Handle("POST /order/{id}", dibshttp.Lock(byPath(locks))(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if late := r.Header.Get("Late"); late != "" {
			fmt.Fprintln(out, "working")
			<-finish
			if late == "after the context" {
				<-r.Context().Done()
			}
			fmt.Fprintln(w, "success")
			<-r.Context().Done()
			fmt.Fprintln(out, "lost:", errors.Is(context.Cause(r.Context()), dibs.ErrLost))
			return
		}
		fmt.Fprintln(w, "success")
	})))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Fprintln(out, "http://"+listener.Addr().String())
	return http.Serve(listener, mux)
}

// A reply is a client's response to a request.
type reply struct {
	status     int // 0 without a complete response
	retryAfter int
	err        error
	sent, done time.Time
}

func (r reply) success() bool { return r.err == nil && r.status < 400 }

func postTo(t *testing.T, url, late string) reply {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	if late != "" {
		r.Header.Set("Late", late)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}} // a connection per request
	a := reply{sent: time.Now()}
	response, err := client.Do(r)
	a.done = time.Now()
	if err != nil {
		a.err = err
		return a
	}
	defer response.Body.Close()
	_, a.err = io.ReadAll(response.Body)
	a.status = response.StatusCode
	a.retryAfter, _ = strconv.Atoi(response.Header.Get("Retry-After"))
	return a
}

// occupy starts a request that holds the lock until /finish.
func occupy(t *testing.T, child *childtest.Child, url, late string) (began time.Time, first <-chan reply) {
	t.Helper()
	replies := make(chan reply, 1)
	began = time.Now()
	go func() { replies <- postTo(t, url+"/order/42", late) }()
	if line := child.Line(); line != "working" {
		t.Fatalf("the server prints %q, want working", line)
	}
	return began, replies
}

// untilServed repeats a request until it succeeds. It checks the earlier responses: each is a
// 409, and its Retry-After the lease's expiry, which the caller knows to be between two times. A
// request after the first promised time is served.
func untilServed(t *testing.T, url string, earliest, latest time.Time) {
	t.Helper()
	const slack = 500 * time.Millisecond // a renewal sent before a process ends can arrive later
	latest = latest.Add(slack)
	begin := time.Now()
	var promised time.Time
	busy := 0
	for ; ; time.Sleep(50 * time.Millisecond) { // between polls
		a := postTo(t, url+"/order/42", "")
		if a.success() {
			if busy == 0 || a.done.Before(earliest) {
				t.Errorf("after %d busy answers, served %v before the lease has expired", busy, earliest.Sub(a.done))
			}
			t.Logf("served after %v and %d busy answers", a.done.Sub(begin).Round(time.Millisecond), busy)
			return
		}
		least, most := seconds(earliest.Sub(a.done)), seconds(latest.Sub(a.sent))
		if a.status != http.StatusConflict || a.retryAfter < least || a.retryAfter > most {
			t.Fatalf("have status %d, Retry-After %d, %v; want 409 with %d to %d", a.status, a.retryAfter, a.err, least, most)
		}
		if busy++; busy == 1 {
			promised = a.done.Add(time.Duration(a.retryAfter)*time.Second + slack)
		} else if a.sent.After(promised) {
			t.Fatalf("busy %v after the promised time", a.sent.Sub(promised))
		}
	}
}

func seconds(d time.Duration) int { return max(1, int(math.Ceil(d.Seconds()))) }

// A server process is killed in the middle of a handler.
func TestKilledServer(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	a, b := childtest.Start(t, "serve", redis.URL()), childtest.Start(t, "serve", redis.URL())
	urlA, urlB := a.Line(), b.Line()
	began, first := occupy(t, a, urlA, "killed")
	a.Kill()
	untilServed(t, urlB, began.Add(crashTTL), time.Now().Add(crashTTL))
	if a := servicetest.Receive(t, "the first request ends", first); a.success() {
		t.Errorf("the killed server has answered %d", a.status)
	}
}

// A server process is stopped for longer than the TTL. Its late handler should not succeed.
func TestStoppedServer(t *testing.T) {
	for _, late := range []string{"after the context", "ignores the context"} {
		t.Run(late, func(t *testing.T) {
			t.Parallel()
			redis := redistest.Start(t)
			a, b := childtest.Start(t, "serve", redis.URL()), childtest.Start(t, "serve", redis.URL())
			urlA, urlB := a.Line(), b.Line()
			began, first := occupy(t, a, urlA, late)
			if err := a.Process().Signal(syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			untilServed(t, urlB, began.Add(crashTTL), time.Now().Add(crashTTL))
			if err := a.Process().Signal(syscall.SIGCONT); err != nil {
				t.Fatal(err)
			}
			if finish := postTo(t, urlA+"/finish", ""); !finish.success() {
				t.Fatalf("finish: status %d, %v", finish.status, finish.err)
			}
			if line := a.Line(); line != "lost: true" {
				t.Errorf("the late handler prints %q", line)
			}
			answer := servicetest.Receive(t, "the first request ends", first)
			if answer.success() || answer.err != nil && !strings.Contains(answer.err.Error(), "EOF") {
				t.Errorf("the late handler has answered %d, %v; want 500 or EOF", answer.status, answer.err)
			}
			t.Logf("status %d, %v", answer.status, answer.err)
		})
	}
}
