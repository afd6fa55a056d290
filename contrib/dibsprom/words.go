package dibsprom

// Values for the label result of dibs_acquire_seconds: how a call ended.
const (
	ResultAcquired    = "acquired"    // it returned a lease: the lock was free, or a repeated request acquired it
	ResultNotified    = "notified"    // it returned a lease by a hand-off, with a notification
	ResultBusy        = "busy"        // the lock was held until the try or dibs.Wait was over
	ResultTimeout     = "timeout"     // its context's deadline passed
	ResultCanceled    = "canceled"    // its context was cancelled
	ResultUnavailable = "unavailable" // the store could not be reached, did not answer in time, or rejected the request
	ResultClosed      = "closed"      // the dibs.Client was closed
	ResultWrongType   = "wrong_type"  // the key holds a value that is not a lock
	ResultError       = "error"       // anything else
)

// Values for the label end of dibs_held_seconds: how a lease ended.
const (
	EndReleased    = "released"    // by Unlock or Detach
	EndLost        = "lost"        // before its release; Unlock may have noticed it
	EndUnavailable = "unavailable" // by an Unlock not confirmed by the store
)

// ReasonOther is the label reason in dibs_lost_total for a reason unknown to this version. The
// other values are dibs.Reason's.
const ReasonOther = "other"
