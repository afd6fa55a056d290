package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/dibslock/dibs/cmd/dibs/internal/supervise"
	"github.com/dibslock/dibs/dashboard/view"
	"github.com/dibslock/dibs/dashboard/watch"
	"github.com/dibslock/dibs/driver"
	"github.com/spf13/cobra"
	"golang.org/x/term"
)

func topCmd(a *app) *cobra.Command {
	var every durationFlag
	c := &cobra.Command{
		Use:   "top [GLOB]",
		Short: "Show the locks on a screen, the longest wait first",
		Long: `Show the locks on a screen that is updated continuously. Names with the longest
wait come first, then names that never expire. GLOB is as in "dibs ls".

Keys:

    j and k, or the arrows                 move
    space and b, or Page Down and Page Up  move by a page
    g and G, or Home and End               go to the first and the last name
    s                                      change the order
    ^Z                                     suspend
    q                                      quit`,
		Example: `  dibs top
  dibs top 'order:*' --every 2s`,
		Args:              argCount(0, 1),
		ValidArgsFunction: a.stores.completeName,
		RunE: func(_ *cobra.Command, args []string) error {
			if err := every.check(); err != nil {
				return err
			}
			if a.con.json {
				return usage("top has no JSON output; use dibs watch --json")
			}
			return top(a, globOf(args), time.Duration(every))
		},
	}
	addEvery(c, &every)
	return c
}

func top(a *app, glob string, every time.Duration) error {
	out, ok := a.con.out.(*os.File)
	if !ok || !terminal(out) || !terminal(a.con.in) || a.env.get("TERM") == "dumb" {
		return usage(`top needs a terminal with cursor control; "dibs watch" prints the changes line by line, "dibs ls" the current locks`)
	}
	s, err := a.stores.open(untilExit)
	if err != nil {
		return err
	}
	defer func() { _ = s.close() }()           // only reads were made
	signal.Notify(a.signals, syscall.SIGWINCH) // show then draws for the new size
	v := &screen{in: a.con.in, out: out, signals: a.signals}
	board := view.Board{Location: s.location, Every: every, Colours: a.con.colours()}
	return v.use(func() error { return v.show(board, s.poller(), glob) })
}

// A screen is top's terminal.
type screen struct {
	in, out *os.File
	signals signals
	before  *term.State // the terminal's former state
}

// Terminal sequences. enterScreen turns autowrap off, so that a line wider than expected cannot
// overwrite the next line.
const (
	enterScreen = "\x1b[?1049h\x1b[?25l\x1b[?7l"
	leaveScreen = "\x1b[?7h\x1b[?25h\x1b[?1049l"
)

// use calls do with the terminal in raw mode on the alternate screen, and restores the
// terminal afterwards, also after a panic.
func (v *screen) use(do func() error) (err error) {
	if v.before, err = term.MakeRaw(int(v.in.Fd())); err != nil {
		return fmt.Errorf("top: %w", err)
	}
	defer v.leave()
	fmt.Fprint(v.out, enterScreen)
	return do()
}

func (v *screen) leave() {
	fmt.Fprint(v.out, leaveScreen)
	_ = term.Restore(int(v.in.Fd()), v.before) // fails only if the terminal is gone
}

// Raw mode turns ^C, ^\ and ^Z into keys as any other.
const (
	keyInterrupt = "\x03"
	keyQuit      = "\x1c"
	keyStop      = "\x1a"
)

// enter repeats use's first steps: a shell may have used the terminal meanwhile.
func (v *screen) enter() {
	_, _ = term.MakeRaw(int(v.in.Fd())) // a failure leaves the mode as it is
	fmt.Fprint(v.out, enterScreen)
}

// suspend restores the terminal and stops a process, until SIGCONT: this one, or with 0 the whole
// job, as the terminal does. It does nothing if no shell can continue the job. The error is a
// termination signal that arrived meanwhile.
func (v *screen) suspend(pid int) (err error) {
	if !supervise.HasJobControl() {
		return nil
	}
	v.leave()                              // before: a process in the background may not do it
	_ = syscall.Kill(pid, syscall.SIGSTOP) // always permitted
	supervise.WaitUntilContinued(v.signals, func(caught os.Signal) {
		if sig, _ := caught.(syscall.Signal); supervise.IsTermination(sig) {
			err = signalError{sig}
		}
	})
	v.enter()
	return err
}

// show draws a board until a key or a signal ends it. Polls from the store and pressed keys change
// the board.
func (v *screen) show(board view.Board, poller watch.Poller, glob string) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	polls, keys, panics := make(chan watch.Poll), make(chan string), make(chan string, 2)
	var visible atomic.Pointer[[]string]
	visible.Store(&[]string{})
	shown := func() []string { return slices.Clone(*visible.Load()) }
	go watch.CatchPanic(panics, func() {
		for poll := range poller.Sparse(ctx, glob, board.Every, shown) {
			send(ctx, polls, poll)
		}
	})
	go watch.CatchPanic(panics, func() { readKeys(ctx, v.in, keys) })
	for {
		if err := v.draw(&board); err != nil {
			return err
		}
		visible.Store(new(board.Visible()))
		select {
		case poll := <-polls:
			if errors.Is(poll.Err, driver.ErrInvalid) {
				return poll.Err
			}
			board.UpdateMany(poll.Names(), poll.States, poll.Err, time.Now())
		case key := <-keys:
			switch key {
			case "q":
				return nil
			case keyInterrupt:
				return typed(syscall.SIGINT)
			case keyQuit:
				return typed(syscall.SIGQUIT)
			case keyStop:
				if err := v.suspend(0); err != nil {
					return err
				}
			}
			board.Press(key)
		case caught := <-v.signals:
			switch sig, _ := caught.(syscall.Signal); {
			case supervise.IsTermination(sig):
				return signalError{sig}
			case sig == syscall.SIGTSTP:
				if err := v.suspend(os.Getpid()); err != nil {
					return err
				}
			case sig == syscall.SIGCONT:
				v.enter()
			}
		case stack := <-panics:
			panic(stack)
		}
	}
}

func (v *screen) draw(board *view.Board) error {
	width, height, err := term.GetSize(int(v.out.Fd()))
	if err != nil || width <= 0 || height <= 0 {
		width, height = 80, 24
	}
	_, err = v.out.WriteString(board.Draw(time.Now(), width, height))
	return exitOnEPIPE(err)
}

func send[T any](ctx context.Context, to chan<- T, v T) {
	select {
	case to <- v:
	case <-ctx.Done():
	}
}

// readKeys sends the pressed keys. At the input's end it sends "q".
func readKeys(ctx context.Context, in *os.File, keys chan<- string) {
	for buf := make([]byte, 64); ; {
		n, err := in.Read(buf)
		for typed := string(buf[:n]); typed != ""; {
			key := firstKey(typed)
			typed = typed[len(key):]
			send(ctx, keys, key)
		}
		if err != nil {
			send(ctx, keys, "q")
			return
		}
	}
}

// firstKey returns the first key's characters in typed.
func firstKey(typed string) string {
	if len(typed) < 3 || typed[0] != '\x1b' || typed[1] != '[' && typed[1] != 'O' {
		return typed[:1]
	}
	for i := 2; i < len(typed); i++ {
		if typed[i] >= '@' {
			return typed[:i+1]
		}
	}
	return typed
}
