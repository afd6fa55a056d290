package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"
)

// A process is a team in a process of its own: this program once more. It reads
// jobs from its input, writes reports to its output, and lives as long as its
// input is open: so it also ends when this process is killed.
type process struct {
	cmd     *exec.Cmd
	in      io.WriteCloser
	jobs    *json.Encoder
	reports *json.Decoder
}

func startProcess(url, prefix string) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, workerArg, prefix)
	cmd.Env = append(os.Environ(), "DIBS_URL="+url) // not an argument: all can read these
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &process{cmd: cmd, in: in, jobs: json.NewEncoder(in), reports: json.NewDecoder(out)}, nil
}

// do implements team. The process ends with ctx.
func (p *process) do(ctx context.Context, j job) (report, error) {
	defer context.AfterFunc(ctx, func() { p.in.Close() })()
	if err := p.jobs.Encode(j); err != nil {
		return report{}, p.failed(ctx, err)
	}
	var r report
	if err := p.reports.Decode(&r); err != nil {
		return report{}, p.failed(ctx, err)
	}
	if r.Error != "" {
		return report{}, p.failed(ctx, errors.New(r.Error))
	}
	return r, nil
}

func (p *process) failed(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return fmt.Errorf("worker process %d: %w", p.cmd.Process.Pid, err)
}

// close implements team.
func (p *process) close() error {
	const patience = 5 * time.Second
	p.in.Close()
	defer time.AfterFunc(patience, func() { _ = p.cmd.Process.Kill() }).Stop()
	if err := p.cmd.Wait(); err != nil {
		return fmt.Errorf("worker process %d: %w", p.cmd.Process.Pid, err)
	}
	return nil
}

// serve is the other end: it does jobs until its input ends.
func serve(ctx context.Context, url, prefix string, in io.Reader, out io.Writer) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s, err := openServer(ctx, url, prefix)
	if err != nil {
		return err
	}
	defer s.rdb.Close()
	team := newLocal(s)
	defer func() { err = errors.Join(err, team.close()) }()

	reports := json.NewEncoder(out)
	for j := range read(ctx, cancel, in) {
		r, err := team.do(ctx, j)
		if err != nil {
			r = report{Error: err.Error()}
		}
		if err := reports.Encode(r); err != nil {
			return err
		}
	}
	return nil
}

// read returns the jobs that come in, and ends everything at their end.
func read(ctx context.Context, end context.CancelFunc, in io.Reader) <-chan job {
	jobs := make(chan job)
	go func() {
		defer close(jobs)
		defer end()
		for input := json.NewDecoder(in); ; {
			var j job
			if input.Decode(&j) != nil {
				return
			}
			select {
			case jobs <- j:
			case <-ctx.Done():
				return
			}
		}
	}()
	return jobs
}
