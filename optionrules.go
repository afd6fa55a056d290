package dibs

// A level is where an option is given.
type level uint8

const (
	atClient level = iota // New
	atLock                // Client.Mutex and the like
	atCall                // Lock, Do, Attach and the like
	levels   = 3
)

// An optionID is the index of an option in optionRules.
type optionID uint8

const (
	ttlOption optionID = iota
	waitOption
	timeoutOption
	attemptsOption
	maxHoldOption
	noRenewOption
	minHoldOption
	reentrantOption
	labelOption
	tokenOption
	observeOption
	retryFailedOption
	optionCount
)

// An optionSet is a set of options.
type optionSet uint16

func (s optionSet) has(o optionID) bool { return s&(1<<o) != 0 }
func (s *optionSet) add(o optionID)     { *s |= 1 << o }

// A use is what settings are for.
type use uint8

const (
	ofLock   use = iota // Mutex, RWMutex, Semaphore, MultiMutex, Election
	ofOnce              // Once
	ofAttach            // Client.Attach
)

// A useSet is a set of uses.
type useSet uint8

const (
	waiting  = useSet(1 << ofLock) // locks whose calls can wait
	locks    = waiting | 1<<ofOnce
	anything = locks | 1<<ofAttach
)

// optionRules says where each option has a meaning. Elsewhere it is rejected, and not
// ignored. Only a default of the client applies where it has a meaning.
var optionRules = [optionCount]struct {
	name string
	from level  // the outermost level
	of   useSet // at the levels of the lock and the call
	why  string // it has no meaning elsewhere
}{
	ttlOption:       {"TTL", atClient, locks, "Extend sets the TTL of an attached lease"},
	waitOption:      {"Wait", atClient, waiting, "the call does not wait"},
	timeoutOption:   {"Timeout", atClient, anything, ""},
	attemptsOption:  {"Attempts", atClient, waiting, "the call tries once"},
	maxHoldOption:   {"MaxHold", atClient, anything, ""},
	noRenewOption:   {"NoRenew", atClient, anything, ""},
	minHoldOption:   {"MinHold", atClient, waiting, "only the call that acquires a lease can set it, and Once has its interval instead"},
	reentrantOption: {"Reentrant", atClient, locks, "an attached lease is acquired already"},
	labelOption:     {"Label", atClient, locks, "an attached lease has the label of its first owner"},
	tokenOption:     {"Token", atCall, locks, "it identifies one lease; give it to the call"},
	observeOption:   {"Observe", atClient, anything, ""},

	retryFailedOption: {"RetryFailed", atClient, 1 << ofOnce, "only Once has an interval that a failed run uses up"},
}
