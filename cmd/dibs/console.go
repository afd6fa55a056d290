package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/dibslock/dibs/cmd/dibs/internal/supervise"
	"github.com/dibslock/dibs/dashboard/view"
	"golang.org/x/term"
)

// A console is the standard streams and the flags for them. Results go to out, and messages to err.
type console struct {
	in  *os.File
	out io.Writer
	err io.Writer
	env environment

	json    bool
	quiet   bool
	verbose bool

	progressShown atomic.Bool // the terminal's last line shows a wait's progress
}

// print writes to stdout. If the reader has closed it, as head(1) does, the error makes dibs exit
// as with SIGPIPE.
func (c *console) print(text string) error {
	_, err := io.WriteString(c.out, text)
	return exitOnEPIPE(err)
}

// printJSON writes a value to stdout as a single line in JSON.
func (c *console) printJSON(v any) error { return exitOnEPIPE(view.WriteLine(c.out, v)) }

func exitOnEPIPE(err error) error {
	if errors.Is(err, syscall.EPIPE) {
		return exitWith(supervise.CodeSignal+int(syscall.SIGPIPE), nil)
	}
	return err
}

// event prints an event on stderr, with --json only: stdout belongs to the command.
func (c *console) event(e any) {
	if c.json {
		_ = view.WriteLine(c.err, e) // a failure cannot be reported anywhere
	}
}

// logf prints a line for people on stderr, unless --quiet or --json is set.
func (c *console) logf(format string, args ...any) {
	if !c.quiet && !c.json {
		fmt.Fprint(c.err, c.clear()+"dibs: "+fmt.Sprintf(format, args...)+"\n")
	}
}

// finish prints an error and returns the exit code.
func (c *console) finish(err error) int {
	if err == nil {
		return 0
	}
	code := codeOf(err)
	if !silent(err) {
		c.printError(err, code)
	}
	return code
}

func (c *console) printError(err error, code int) {
	text := view.ErrorText(err)
	if c.json {
		c.event(view.ErrorEvent{Stamp: stamp("error"), Error: text, Code: code})
		return
	}
	fmt.Fprintf(c.err, "%sdibs: %s\n", c.clear(), text)
}

// stamp returns the stamp for an event that happens now.
func stamp(event string) view.Stamp { return view.Stamped(event, time.Now()) }

// clearLine erases a terminal's current line.
const clearLine = "\r\x1b[K"

// clear returns the sequence to remove a progress line, to print before a lasting line.
func (c *console) clear() string {
	if c.progressShown.Load() {
		return clearLine
	}
	return ""
}

// showProgress replaces the terminal's progress line.
func (c *console) showProgress(line string) {
	c.progressShown.Store(true)
	fmt.Fprint(c.err, clearLine+line)
}

func (c *console) clearProgress() {
	if c.progressShown.CompareAndSwap(true, false) {
		fmt.Fprint(c.err, clearLine)
	}
}

// showsProgress reports whether stderr is a terminal and not silenced.
func (c *console) showsProgress() bool { return !c.quiet && !c.json && terminal(c.err) }

// width returns stdout's width in columns, or zero if it is not a terminal.
func (c *console) width() int {
	if !terminal(c.out) {
		return 0
	}
	return widthOf(c.out)
}

// colours reports whether stdout may be coloured.
func (c *console) colours() bool {
	return c.env.get("NO_COLOR") == "" && c.env.get("TERM") != "dumb" && terminal(c.out)
}

func terminal(w any) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// widthOf returns a terminal's width in columns, or 80 if w is not a terminal.
func widthOf(w any) int {
	if f, ok := w.(*os.File); ok {
		if width, _, err := term.GetSize(int(f.Fd())); err == nil && width > 0 {
			return width
		}
	}
	return 80
}
