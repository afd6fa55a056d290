package supervise

import (
	"os"
	"os/signal"
	"syscall"
	"time"
)

// CatchSignals redirects the signals that could end or stop this process to the returned channel.
// [StartWatchdog] adds the harmless signals, for the command: each signal costs two switches
// between threads. Signals ignored by this process's caller, for example through nohup, stay
// ignored. Call it once.
func CatchSignals() chan os.Signal {
	caught := make(chan os.Signal, 64)
	redirectSignals(caught, harmful)
	// SIGPIPE must not end this process, because a lock and a child process would remain.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	return caught
}

// catchHarmlessSignals redirects the other signals to the same channel.
func catchHarmlessSignals(caught chan<- os.Signal) { redirectSignals(caught, harmless) }

// dropSignals catches and drops signals, so that they do not end the watchdog. It does not ignore
// them, because the command would inherit this.
func dropSignals() { redirectSignals(make(chan os.Signal, 1), harmful) }

func harmful(s syscall.Signal) bool { return !harmless(s) }

// harmless reports whether Go's runtime catches and drops a signal without a request, as it does
// with the real-time signals.
func harmless(s syscall.Signal) bool {
	const lastStandard = 31
	switch s {
	case syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGALRM, syscall.SIGWINCH, syscall.SIGXCPU, syscall.SIGXFSZ, syscall.SIGIO:
		return true
	}
	return s > lastStandard
}

func redirectSignals(to chan<- os.Signal, which func(syscall.Signal) bool) {
	const last = 64
	for n := syscall.Signal(1); n <= last; n++ {
		if which(n) && forwarded(n) && !signal.Ignored(n) {
			signal.Notify(to, n)
		}
	}
}

// forwarded reports whether a signal is forwarded to the command. Signals for this process only,
// such as SIGCHLD or SIGSEGV, are not.
func forwarded(s syscall.Signal) bool {
	switch s {
	case syscall.SIGKILL, syscall.SIGSTOP, syscall.SIGCHLD, syscall.SIGURG, syscall.SIGPIPE,
		syscall.SIGTTIN, syscall.SIGTTOU, syscall.SIGPROF, syscall.SIGVTALRM,
		syscall.SIGSEGV, syscall.SIGBUS, syscall.SIGFPE, syscall.SIGILL, syscall.SIGTRAP, syscall.SIGSYS:
		return false
	}
	return s < 32 || s > 34 // the C library uses 32 to 34
}

// IsTermination reports whether a signal asks a process to end.
func IsTermination(s syscall.Signal) bool {
	switch s {
	case syscall.SIGHUP, syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT, syscall.SIGABRT:
		return true
	}
	return false
}

// WaitUntilContinued waits until the shell continues this process after a SIGSTOP, for at most 1 s.
// SIGSTOP reaches the threads in turn, so this thread continues for a moment. At that time the
// terminal is not yet the shell's, and nothing may use it yet. A container's first process is not
// stopped at all, hence the limit. Other signals are passed to handle.
func WaitUntilContinued(signals <-chan os.Signal, handle func(os.Signal)) {
	limit := time.After(time.Second)
	for {
		select {
		case sig := <-signals:
			if sig == syscall.SIGCONT {
				return
			}
			handle(sig)
		case <-limit:
			return
		}
	}
}
