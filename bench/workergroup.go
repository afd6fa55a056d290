package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"time"
)

// A workerGroup is the parent's view of a run's workers.
type workerGroup struct {
	fixture *fixture
	workers []*worker
	wire    []string // the commands sent by the peer's clients
}

type worker struct {
	order order
	cmd   *exec.Cmd
	in    io.Closer
	link  link
}

// startWorkers starts workers and returns when they are ready. The caller must call stop,
// also after an error.
func (b *fixture) startWorkers(orders ...order) (*workerGroup, error) {
	c := &workerGroup{fixture: b}
	for _, o := range orders {
		w, err := start(o)
		if err != nil {
			return c, err
		}
		c.workers = append(c.workers, w)
	}
	for _, w := range c.workers {
		var h hello
		if err := w.receive(&h); err != nil {
			return c, err
		}
		if c.wire == nil {
			c.wire = h.Wire // from the first worker: the second may be a pinger
		}
	}
	return c, nil
}

func start(o order) (*worker, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	w := &worker{order: o, cmd: exec.Command(self)}
	w.cmd.Env = append(os.Environ(), workerEnv+"="+string(text))
	if o.Procs > 0 {
		w.cmd.Env = append(w.cmd.Env, "GOMAXPROCS="+strconv.Itoa(o.Procs))
	}
	w.cmd.Stderr = os.Stderr
	in, err := w.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := w.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	w.in, w.link = in, link{in: json.NewDecoder(out), out: json.NewEncoder(in)}
	return w, w.cmd.Start()
}

// stop ends the workers, whose results were received before.
func (c *workerGroup) stop() {
	for _, w := range c.workers {
		w.in.Close() // it exits at the end of its input
	}
	for _, w := range c.workers {
		_ = w.cmd.Wait() // receive reports failures
	}
}

// workerTimeout is the time after which a worker counts as hanging, unless its order sets another.
const workerTimeout = 60 * time.Second

func (w *worker) receive(v any) error {
	kill := time.AfterFunc(cmp.Or(w.order.Patience, workerTimeout), func() { _ = w.cmd.Process.Kill() })
	defer kill.Stop()
	err := w.link.in.Decode(v)
	if errors.Is(err, io.EOF) {
		err = errors.New("the worker failed or hung")
	}
	if err != nil {
		return fmt.Errorf("worker for %s of %s: %w", w.order.Job, w.order.Peer, err)
	}
	return nil
}

// observe starts the workers and returns the servers' work during the window. The window begins
// after the warm-up.
func (c *workerGroup) observe(warm, length time.Duration) (window, usage, error) {
	from := now() + warm
	win := window{From: from, To: from + length}
	if err := c.send(win); err != nil {
		return win, usage{}, err
	}
	sleepUntil(win.From)
	before, err := c.fixture.usage()
	if err != nil {
		return win, usage{}, err
	}
	sleepUntil(win.To)
	after, err := c.fixture.usage()
	return win, after.since(before), err
}

func (c *workerGroup) send(v any) error {
	for _, w := range c.workers {
		if err := w.link.out.Encode(v); err != nil {
			return err
		}
	}
	return nil
}
