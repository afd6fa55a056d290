package cohort

// StopReport stops the report about the store lease's end, as if the reporting goroutine had not
// yet run. report makes it.
func (c *Cohort) StopReport() (report func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.tenure
	t.forget()
	return func() { c.storeEnded(t) }
}

// StopTimer stops MaxHold's timer, as if its goroutine had not yet run.
func (l *Lease) StopTimer() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.timer.Stop()
}
