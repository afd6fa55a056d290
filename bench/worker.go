package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/dibslock/dibs"
)

// Runs are measured in worker processes. A worker is this program with an order in its environment.
// So each peer has its own heap, scheduler and connections, and the measured CPU time and
// allocations belong only to it.

// workerEnv is the environment variable with a worker's order, as JSON.
const workerEnv = "DIBS_BENCH_WORKER"

// An order describes a worker's job.
type order struct {
	Job     string
	Peer    string
	Addrs   []string // the server's, or a quorum's nodes
	TTL     time.Duration
	Name    string // the locked name, or its prefix
	Workers int    // number of workers sharing the waiters and leases
	Index   int    // this worker's
	Count   int    // goroutines, waiters or leases in all workers
	Section time.Duration
	Names   int  // for each goroutine in a pairs job; default: 64
	Clients int  // of dibs in a worker; Count is the leases for each
	Waiters bool // each waits for another client's name
	Rounds  int  // in a deadlines job
	Busy    int  // computing goroutines
	Procs   int  // GOMAXPROCS, or 0

	Patience time.Duration // after which the worker counts as hanging, or 0
	Profile  string        // file for the CPU profile, or ""
}

// A window is a measurement's time, on the clock shared by all processes. Before it, workers warm
// up: they open connections, load scripts and fill the queue.
type window struct{ From, To time.Duration }

// A link is the connection between a worker and its parent, which send in turns.
type link struct {
	in  *json.Decoder
	out *json.Encoder
}

// jobs are the workers' jobs. A measurement begins when the job receives its window.
var jobs = map[string]func(order, peer, link) error{
	"busy":      busyJob,
	"commit":    commitJob,
	"contend":   contendJob,
	"deadlines": deadlinesJob,
	"hold":      holdJob,
	"loss":      lossJob,
	"names":     namesJob,
	"pairs":     pairsJob,
	"ping":      pingJob,
	"storm":     stormJob,
}

func isWorker() bool { return os.Getenv(workerEnv) != "" }

// work is a worker's main function. It ends when its parent exits.
func work(in io.Reader, out io.Writer) error {
	var o order
	if err := json.Unmarshal([]byte(os.Getenv(workerEnv)), &o); err != nil {
		return err
	}
	job := jobs[o.Job]
	if job == nil {
		return fmt.Errorf("unknown job %q", o.Job)
	}
	p, err := openPeer(o.Peer, newEndpoint(o.Addrs, o.TTL))
	if err != nil {
		return err
	}
	if err := warm(p, fmt.Sprintf("%s:warm:%d", o.Name, o.Index)); err != nil {
		return fmt.Errorf("%s: first lock: %w", o.Peer, err)
	}
	t := link{in: json.NewDecoder(exitAtEOF(in)), out: json.NewEncoder(out)}
	if err := t.out.Encode(hello{Wire: p.Wire()}); err != nil {
		return err
	}
	return job(o, p, t)
}

// hello is a worker's first message.
type hello struct{ Wire []string }

// exitAtEOF returns a copy of its input. It ends the process at the end of the input: the parent
// exited or was killed.
func exitAtEOF(in io.Reader) io.Reader {
	r, w := io.Pipe()
	go func() {
		_, _ = io.Copy(w, in)
		os.Exit(3)
	}()
	return r
}

// warm opens a connection and loads the scripts into the server.
func warm(p peer, name string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for {
		unlock, err := p.Lock(ctx, name)
		if err == nil {
			return unlock()
		}
		if ctx.Err() != nil || !errors.Is(err, dibs.ErrUnavailable) {
			return err
		}
		// All workers start at the same time, and the processor may not keep up.
	}
}

func sleepUntil(t time.Duration) { time.Sleep(t - now()) }

// A startSignal starts a job's part before its window.
type startSignal struct{}
