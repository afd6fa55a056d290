package cohort

// StopReport stops the report of the end of the store lease, as if the goroutine that makes it had
// not yet run. report makes it.
func (c *Cohort) StopReport() (report func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.tenure
	t.forget()
	return func() { c.storeEnded(t) }
}

// StopTimer stops the timer of MaxHold, as if its goroutine had not yet run.
func (l *Lease) StopTimer() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.timer.Stop()
}
