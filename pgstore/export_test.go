package pgstore

// AcquireQuiet returns the text of the statement that acquires a name for which nobody waits.
func (s *Store) AcquireQuiet() string { return s.text.acquireQuiet }
