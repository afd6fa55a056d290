package supervise

import (
	"os"
	"os/signal"
	"syscall"
)

// lastStandard is the last signal before the real-time signals. Go's runtime catches and
// drops those, so they end no process of Go.
const lastStandard = syscall.Signal(31)

// CatchSignals redirects the standard signals that can be caught to the returned channel.
// [StartWatchdog] adds the real-time signals, for the command: each signal costs two switches between
// threads, and most subcommands need none of these. Signals that the caller of this
// process ignores, for example through nohup, stay ignored. Call it once.
func CatchSignals() chan os.Signal {
	caught := make(chan os.Signal, 64)
	redirectSignals(caught, 1, lastStandard)
	// SIGPIPE must not end this process: that would leave a lock and a child process behind.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	return caught
}

// catchRealTimeSignals redirects these signals to a channel.
func catchRealTimeSignals(caught chan<- os.Signal) {
	const last = syscall.Signal(64)
	redirectSignals(caught, lastStandard+1, last)
}

// dropSignals catches and drops the standard signals that can be caught, so that they do
// not end the watchdog. It does not ignore them, because the command would inherit that.
func dropSignals() { redirectSignals(make(chan os.Signal, 1), 1, lastStandard) }

func redirectSignals(to chan<- os.Signal, first, last syscall.Signal) {
	for n := first; n <= last; n++ {
		if forwarded(n) && !signal.Ignored(n) {
			signal.Notify(to, n)
		}
	}
}

// forwarded reports whether a signal is forwarded to the command. Signals that concern
// this process only, such as SIGCHLD or SIGSEGV, are not.
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
