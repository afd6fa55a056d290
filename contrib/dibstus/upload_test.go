package dibstus_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/contrib/dibstus"
	"github.com/dibslock/dibs/internal/test/childtest"
	"github.com/dibslock/dibs/internal/test/redistest"
	"github.com/dibslock/dibs/redisstore"
	"github.com/tus/tusd/v2/pkg/filestore"
	"github.com/tus/tusd/v2/pkg/handler"
	"golang.org/x/exp/slog"
)

const (
	childTTL = 3 * time.Second
	half     = 1 << 20 // bytes; an upload has two halves
	basePath = "/files/"
)

func TestMain(m *testing.M) {
	childtest.Main(m, map[string]childtest.Role{"serve": serve})
}

// serve is a process with tusd. It prints its URL, and then a line for each acquired lock: after
// which time.
func serve(out io.Writer, args []string) error {
	server, dir := args[0], args[1]
	conn := redistest.Dial(server)
	defer conn.Close()
	locks := dibs.New(redisstore.New(conn))
	defer locks.Close()
	tusd, err := newHandler(dir, locks, dibs.TTL(childTTL), dibs.Observe(dibs.Hooks{
		AcquireEnd: func(_ context.Context, e dibs.AcquireEnd) { fmt.Fprintln(out, e.Waited) },
	}))
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "http://%s%s\n", listener.Addr(), basePath)
	return http.Serve(listener, tusd)
}

// newHandler returns tusd with a directory shared by several processes.
func newHandler(dir string, locks *dibs.Client, options ...dibs.Option) (http.Handler, error) {
	composer := handler.NewStoreComposer()
	filestore.New(dir).UseIn(composer)
	dibstus.New(locks, options...).UseIn(composer)
	tusd, err := handler.NewHandler(handler.Config{
		BasePath:      basePath,
		StoreComposer: composer,
		Logger:        slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	if err != nil {
		return nil, err
	}
	return http.StripPrefix(basePath, tusd), nil
}

// A client uploads a file, as a tus client does.
type client struct {
	t    *testing.T
	dir  string // the servers'
	id   string
	file []byte
}

// newClient creates an upload at a server.
func newClient(t *testing.T, server, dir string) *client {
	t.Helper()
	c := &client{t: t, dir: dir, file: make([]byte, 2*half)}
	random := rand.NewChaCha8([32]byte{1})
	_, _ = random.Read(c.file) // never fails
	response, err := c.do("POST", server, http.Header{"Upload-Length": {strconv.Itoa(len(c.file))}}, nil)
	if err != nil || response.StatusCode != http.StatusCreated {
		t.Fatalf("create: %v, %v", response, err)
	}
	_, c.id, _ = strings.Cut(response.Header.Get("Location"), basePath)
	return c
}

func (c *client) do(method, url string, header http.Header, body io.Reader) (*http.Response, error) {
	request, err := http.NewRequestWithContext(c.t.Context(), method, url, body)
	if err != nil {
		return nil, err
	}
	if header != nil {
		request.Header = header
	}
	request.Header.Set("Tus-Resumable", "1.0.0")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	_, err = io.Copy(io.Discard, response.Body)
	return response, err
}

// A slowPatch is a PATCH request that sent the first half of the file, and no more.
type slowPatch struct {
	status chan int // the response's, or 0
	body   *io.PipeWriter
}

// beginSlowly begins a PATCH request at a server, and waits until half the file is there.
func (c *client) beginSlowly(server string) slowPatch {
	c.t.Helper()
	reader, writer := io.Pipe()
	p := slowPatch{status: make(chan int, 1), body: writer}
	c.t.Cleanup(func() { writer.Close() })
	go func() {
		response, err := c.do("PATCH", server+c.id, patchHeader(0), reader)
		if err != nil {
			p.status <- 0
			return
		}
		p.status <- response.StatusCode
	}()
	if _, err := writer.Write(c.file[:half]); err != nil {
		c.t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		stat, err := os.Stat(filepath.Join(c.dir, c.id))
		if err == nil && stat.Size() == half {
			return p
		}
		if time.Now().After(deadline) {
			c.t.Fatalf("the first half did not arrive: %v, %v", stat, err)
		}
	}
}

// offset asks a server how much of the file it stores.
func (c *client) offset(server string) int {
	c.t.Helper()
	response, err := c.do("HEAD", server+c.id, nil, nil)
	if err != nil || response.StatusCode != http.StatusOK {
		c.t.Fatalf("offset: %v, %v", response, err)
	}
	offset, err := strconv.Atoi(response.Header.Get("Upload-Offset"))
	noError(c.t, err)
	return offset
}

// finish sends the missing bytes to a server, and compares the file.
func (c *client) finish(server string, offset int) {
	c.t.Helper()
	response, err := c.do("PATCH", server+c.id, patchHeader(offset), bytes.NewReader(c.file[offset:]))
	if err != nil || response.StatusCode != http.StatusNoContent {
		c.t.Fatalf("finish: %v, %v", response, err)
	}
	stored, err := os.ReadFile(filepath.Join(c.dir, c.id))
	noError(c.t, err)
	if !bytes.Equal(stored, c.file) {
		c.t.Errorf("%d bytes are stored, and differ from the %d of the client", len(stored), len(c.file))
	}
}

func patchHeader(offset int) http.Header {
	return http.Header{
		"Upload-Offset": {strconv.Itoa(offset)},
		"Content-Type":  {"application/offset+octet-stream"},
	}
}

// A client that resumes at another server must end its old request. The file must be exact.
func TestResumeAtAnotherServer(t *testing.T) {
	redis, dir := redistest.Start(t), t.TempDir()
	a, b := childtest.Start(t, "serve", redis.Addr(), dir), childtest.Start(t, "serve", redis.Addr(), dir)
	urlA, urlB := a.Line(), b.Line()
	client := newClient(t, urlA, dir)
	if response, err := client.do("HEAD", urlB+"unknown", nil, nil); err != nil || response.StatusCode != http.StatusNotFound {
		t.Fatalf("unknown upload: %v, %v", response, err)
	}
	b.Line() // its first lock, which connects to Redis
	old := client.beginSlowly(urlA)

	begin := time.Now()
	offset := client.offset(urlB)
	took := time.Since(begin)
	t.Logf("the offset after %v, the lock after %s", took.Round(10*time.Microsecond), b.Line())
	if took > childTTL {
		t.Errorf("took %v, want less than the TTL", took)
	}
	if status := <-old.status; status != http.StatusBadRequest { // handler.ErrUploadInterrupted
		t.Errorf("the old request: status %d, want 400", status)
	}
	if offset != half {
		t.Errorf("offset %d, want %d", offset, half)
	}
	client.finish(urlB, offset)
}

// After a server crashes, another continues when the TTL has passed.
func TestResumeAfterACrash(t *testing.T) {
	redis, dir := redistest.Start(t), t.TempDir()
	a, b := childtest.Start(t, "serve", redis.Addr(), dir), childtest.Start(t, "serve", redis.Addr(), dir)
	urlA, urlB := a.Line(), b.Line()
	client := newClient(t, urlA, dir)
	client.beginSlowly(urlA)

	a.Kill()
	killed := time.Now()
	offset := client.offset(urlB)
	took := time.Since(killed)
	t.Logf("TTL %v: the offset %v after the kill", childTTL, took.Round(time.Millisecond))
	if limit := childTTL + 2*time.Second; took > limit {
		t.Errorf("took %v, want at most %v", took, limit)
	}
	client.finish(urlB, offset)
}

// If the lock store loses its data, tusd ends the request, and the client resumes.
func TestResumeAfterALoss(t *testing.T) {
	redis, dir := redistest.Start(t), t.TempDir()
	conn := redistest.Dial(redis.Addr())
	defer conn.Close()
	locks := dibs.New(redisstore.New(conn))
	defer locks.Close()
	tusd, err := newHandler(dir, locks, dibs.TTL(childTTL))
	noError(t, err)
	server := httptest.NewServer(tusd)
	defer server.Close()
	url := server.URL + basePath
	client := newClient(t, url, dir)
	old := client.beginSlowly(url)

	redis.MustCmd(t, "FLUSHALL")
	if status := <-old.status; status != http.StatusBadRequest { // handler.ErrUploadInterrupted
		t.Errorf("the old request: status %d, want 400", status)
	}
	client.finish(url, client.offset(url))
}

func wantError(t *testing.T, err error, want ...error) {
	t.Helper()
	for _, target := range want {
		if !errors.Is(err, target) {
			t.Errorf("got %v, want %v", err, target)
		}
	}
}

func noError(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
