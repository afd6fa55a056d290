package supervise

import (
	"os"
	"sync"
)

// A Watchdog is the watchdog process of one [Run], which starts in the background while
// the lock is being acquired. Use it from one goroutine.
type Watchdog struct {
	signals chan os.Signal
	done    chan struct{}
	process *handle
	err     error
}

// StartWatchdog starts a watchdog process. signals is the channel from [CatchSignals]. [Run]
// returns a failure. Stop the watchdog in any case.
func StartWatchdog(signals chan os.Signal) *Watchdog {
	w := &Watchdog{signals: signals, done: make(chan struct{})}
	go func() {
		defer close(w.done)
		var caught sync.WaitGroup
		caught.Go(func() { catchHarmlessSignals(signals) })
		w.process, w.err = startWatchdog()
		caught.Wait()
	}()
	return w
}

// ready returns the watchdog for a command that is about to start. If the watchdog was killed while
// dibs waited for the lock, ready starts another.
func (w *Watchdog) ready() (*handle, error) {
	<-w.done
	if w.err == nil && w.process.alive() {
		return w.process, nil
	}
	w.stopStarted()
	w.process, w.err = startWatchdog()
	return w.process, w.err
}

// Stop ends the watchdog process, once its start is complete. The command's daemons continue.
func (w *Watchdog) Stop() {
	<-w.done
	w.stopStarted()
}

func (w *Watchdog) stopStarted() {
	if w.err == nil {
		w.process.stop()
	}
}
