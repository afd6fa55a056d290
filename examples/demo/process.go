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

// A process is a team in another process, which runs this program. It reads jobs from its input and
// writes reports to its output. It exits at the end of its input, and therefore also when this
// process is killed.
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
	cmd.Env = append(os.Environ(), "DIBS_URL="+url) // not an argument: arguments are visible to all users
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

// do implements team. When ctx ends, the process exits.
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
	const timeout = 5 * time.Second
	p.in.Close()
	defer time.AfterFunc(timeout, func() { _ = p.cmd.Process.Kill() }).Stop()
	if err := p.cmd.Wait(); err != nil {
		return fmt.Errorf("worker process %d: %w", p.cmd.Process.Pid, err)
	}
	return nil
}

// serve is such a process's main function: it runs jobs until its input ends.
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

// read returns the jobs from in. At the end of in, it closes the channel and calls end.
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
