//go:build unix

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"syscall"

	"github.com/dibslock/dibs"
)

// holderVariable makes this program run as the stopped holder. Its value says whether the holder
// uses the guard.
const holderVariable = "EXAMPLE_HOLDER_GUARDED"

// stopHolder shows the consequences without the guard, and with it.
func stopHolder(ctx context.Context, a *account, url string, out io.Writer) error {
	for _, guarded := range []bool{false, true} {
		if err := a.reset(ctx); err != nil {
			return err
		}
		fmt.Fprintln(out, map[bool]string{false: "without the guard:", true: "with the guard:"}[guarded])
		if err := stopOneHolder(ctx, a, url, guarded, out); err != nil {
			return err
		}
		balance, err := a.read(ctx)
		if err != nil {
			return err
		}
		const right = 100 + 50 - 30
		fmt.Fprintf(out, "  the balance is %d, and should be %d\n", balance, right)
	}
	return nil
}

// stopOneHolder starts process A, which takes 30 from the account, and stops itself before it
// writes. This process, B, then adds 50, and lets A continue.
func stopOneHolder(ctx context.Context, a *account, url string, guarded bool, out io.Writer) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	holder := exec.CommandContext(ctx, self)
	holder.Env = append(os.Environ(), "DIBS_URL="+url, holderVariable+"="+strconv.FormatBool(guarded))
	holder.Stderr = os.Stderr
	pipe, err := holder.StdoutPipe()
	if err != nil {
		return err
	}
	if err := holder.Start(); err != nil {
		return err
	}
	lines := bufio.NewReader(pipe)
	stopped, err := lines.ReadString('\n')
	if err != nil {
		return errors.Join(err, holder.Wait())
	}
	fmt.Fprint(out, stopped)

	balance, err := a.add(ctx, 50) // waits until A's lease expires
	if err != nil {
		return errors.Join(err, holder.Process.Kill(), holder.Wait())
	}
	fmt.Fprintf(out, "  B  adds 50: balance %d\n", balance)

	if err := holder.Process.Signal(syscall.SIGCONT); err != nil {
		return err
	}
	if _, err := io.Copy(out, lines); err != nil {
		return err
	}
	return holder.Wait()
}

// runHolder is process A.
func runHolder(ctx context.Context, url string, guarded bool, out io.Writer) error {
	a, closeAll, err := open(ctx, url)
	if err != nil {
		return err
	}
	defer closeAll()
	a.guarded = guarded
	written, err := a.subtractStopped(ctx, 30, out)
	switch {
	case written: // the loss is noticed too late
		fmt.Fprintln(out, "  A  writes its balance, 70: the 50 of B are lost")
		return nil
	case !errors.Is(err, dibs.ErrLost):
		return err
	}
	fmt.Fprintln(out, "  A  is refused: it has lost its lock, and writes nothing")
	balance, err := a.add(ctx, -30)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "  A  tries again: balance %d\n", balance)
	return nil
}

// subtractStopped is add in a process that is stopped between its read and its write.
func (a *account) subtractStopped(ctx context.Context, amount int64, out io.Writer) (written bool, err error) {
	err = a.locks.Mutex("account:7").Do(ctx, func(ctx context.Context) error {
		balance, err := a.read(ctx)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "  A  reads %d, and is stopped for longer than its TTL\n", balance)
		if err := stopThisProcess(); err != nil {
			return err
		}
		// The lease has expired, and ctx ends at about this moment. A write begun before does not
		// notice it. Without ctx's end, each run shows this case.
		ctx = context.WithoutCancel(ctx)
		err = a.write(ctx, balance-amount)
		written = err == nil
		return err
	})
	return written, err
}

// stopThisProcess stops this process, like ^Z. It returns when another process continues it.
// The lease is renewed until then, or until all threads are stopped.
func stopThisProcess() error {
	continued := make(chan os.Signal, 1)
	signal.Notify(continued, syscall.SIGCONT)
	defer signal.Stop(continued)
	if err := syscall.Kill(os.Getpid(), syscall.SIGSTOP); err != nil {
		return err
	}
	<-continued
	return nil
}
