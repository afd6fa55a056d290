package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"
)

// Runs are measured in worker processes: this program once more, told by its
// environment what to do. So each peer has a heap, a scheduler and connections of
// its own, and processor time and allocations are all its own too.

// workerEnv holds the order of a worker.
const workerEnv = "DIBS_BENCH_WORKER"

// An order is what a worker is to do.
type order struct {
	Job     string
	Peer    string
	Addrs   []string // of the server, or of all that are the nodes of a quorum
	TTL     time.Duration
	Name    string // what is locked, or its beginning
	Workers int    // waiters and leases are dealt out among so many workers,
	Index   int    // of which this is one
	Count   int    // of goroutines, waiters or leases in all workers
	Section time.Duration
	Profile string // a file for the processor's profile, or ""
}

// A window is when figures are taken, on the clock that all processes share.
// Before it, workers warm up: connections, scripts, and a full queue.
type window struct{ From, To time.Duration }

// A link is what worker and parent say to each other, in turns.
type link struct {
	in  *json.Decoder
	out *json.Encoder
}

// jobs are what workers can do. A job begins to be measured when it hears a window.
var jobs = map[string]func(order, peer, link) error{
	"contend": contendJob,
	"hold":    holdJob,
	"pairs":   pairsJob,
	"ping":    pingJob,
}

func isWorker() bool { return os.Getenv(workerEnv) != "" }

// work is a worker's main function. It ends when its parent does.
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

// hello is a worker's first word.
type hello struct{ Wire []string }

// exitAtEOF passes on what it reads, and ends the process when there is no more: the
// parent has gone, however that came about.
func exitAtEOF(in io.Reader) io.Reader {
	r, w := io.Pipe()
	go func() {
		_, _ = io.Copy(w, in)
		os.Exit(3)
	}()
	return r
}

// warm connects, and teaches the server the scripts.
func warm(p peer, name string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	unlock, err := p.Lock(ctx, name)
	if err != nil {
		return err
	}
	return unlock()
}

func sleepUntil(t time.Duration) { time.Sleep(t - now()) }

// startSignal tells a worker to begin what comes before its window.
type startSignal struct{}
