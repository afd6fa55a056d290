package dibs

import (
	"fmt"
	"math/bits"
)

// A new option needs an optionID, a row in optionRules, a case in settings.set, and a probe in
// TestOptionTable. A new function with options needs a way in that test. TestGuideHasTheOptionTable
// writes the table in docs/guide.md.

// An optionID is an option's index in optionRules.
type optionID uint8

const (
	noOption optionID = iota // the zero Option
	ttlOption
	waitOption
	timeoutOption
	minHoldOption
	maxHoldOption
	attemptsOption
	labelOption
	noRenewOption
	reentrantOption
	ownerTokenOption
	observeOption
	retryFailedOption
	renewedHook // given with Observe, as is the next
	degradedHook
	optionCount
)

type optionSet uint32

func (s optionSet) has(o optionID) bool { return s&(1<<o) != 0 }

// A level says how near to the call an option is given.
type level uint8

const (
	atClient level = iota
	atLock
	atCall
	atYield
	levels = 4
)

// A place says where an option is given: to which function at a level.
type place uint8

const (
	toNew    place = iota
	toLock         // Client.Mutex and the like
	toOnce         // Client.Once
	toCall         // for a lock, may wait
	toTry          // for a lock, tries once
	toMany         // many calls for a lock, by a Locker or a wrapped function
	toOnceDo       // Once.Do
	toYield
	toAttach
	placeCount
)

// placeTexts describes the places in errors, with a lock's name, and in the table in docs/guide.md.
var placeTexts = [placeCount]struct{ format, column string }{
	toNew:    {"New", "`New`"},
	toLock:   {"the lock %q", "lock"},
	toOnce:   {"the periodic job %q", "`Once`"},
	toCall:   {"a call on %q", "call"},
	toTry:    {"a Try call on %q", "try"},
	toMany:   {"many calls on %q", "`Wrap`, `Locker`"},
	toOnceDo: {"Do of the periodic job %q", "`Once.Do`"},
	toYield:  {"Yield of %q", "`Yield`"},
	toAttach: {"Attach of %q", "`Attach`"},
}

type placeSet uint16

func (s placeSet) has(p place) bool { return s&(1<<p) != 0 }

const (
	onNew     placeSet = 1 << toNew
	onLocks   placeSet = 1 << toLock
	onOnce    placeSet = 1<<toOnce | 1<<toOnceDo
	onWaits   placeSet = 1 << toCall
	onTries   placeSet = 1 << toTry
	onMany    placeSet = 1 << toMany
	onYield   placeSet = 1 << toYield
	onAttach  placeSet = 1 << toAttach
	onCalls            = onWaits | onTries
	onAcquire          = onNew | onLocks | onCalls | onMany | onOnce // all but Yield and Attach
)

// optionArguments describes an option's arguments.
type optionArguments uint8

const (
	noArguments optionArguments = iota
	aDuration
	aNumberAndDuration
	aText
	aSecret
)

// An optionRule describes an option. It is the only source for checkMeaning, ParseOptions,
// Option.String and the table in docs/guide.md.
type optionRule struct {
	name   string
	key    string // in ParseOptions; or empty
	takes  optionArguments
	places placeSet // where the option has a meaning
	why    string   // the option has no meaning elsewhere, and where to give it instead
	onOnce string   // likewise, for Once; empty: why
}

// optionRules lists where each option has a meaning. Elsewhere an option is rejected, not ignored.
// Only a client's default is ignored where it has no meaning.
var optionRules = [optionCount]optionRule{
	ttlOption: {
		name: "TTL", key: "ttl", takes: aDuration,
		places: onAcquire | onYield | onAttach,
	},
	waitOption: {
		name: "Wait", key: "wait", takes: aDuration,
		places: onNew | onLocks | onWaits | onMany | onYield, why: "it does not wait; give it to Lock or Do",
		onOnce: "it does not wait; give it to Lock or Do of another lock",
	},
	timeoutOption: {
		name: "Timeout", key: "timeout", takes: aDuration,
		places: onAcquire | onYield | onAttach,
	},
	minHoldOption: {
		name: "MinHold", key: "minhold", takes: aDuration,
		places: onNew | onLocks | onCalls | onMany, why: "it begins with the lease; give it to Lock or Do",
		onOnce: "the interval given to Once is its MinHold",
	},
	maxHoldOption: {
		name: "MaxHold", key: "maxhold", takes: aDuration,
		places: onAcquire | onYield | onAttach,
	},
	attemptsOption: {
		name: "Attempts", key: "attempts", takes: aNumberAndDuration,
		places: onNew | onLocks | onWaits | onMany | onYield, why: "it tries once; give it to Lock or Do",
		onOnce: "it tries once; give it to Lock or Do of another lock",
	},
	labelOption: {
		name: "Label", key: "label", takes: aText,
		places: onAcquire | onYield, why: "the lease has the label of its first owner; give it to Lock or Do",
	},
	noRenewOption: {
		name: "NoRenew", key: "norenew", takes: noArguments,
		places: onAcquire | onYield | onAttach,
	},
	reentrantOption: {
		name: "Reentrant", key: "reentrant", takes: noArguments,
		places: onAcquire, why: "it enters no lease; give it to Lock or Do",
	},
	ownerTokenOption: {
		name: "OwnerToken", takes: aSecret,
		places: onCalls | 1<<toOnceDo | onYield, why: "it identifies one lease; give it to the call that acquires it, such as Lock or Do",
	},
	retryFailedOption: {
		name: "RetryFailed", key: "retryfailed", takes: noArguments,
		places: onNew | onOnce, why: "it has no interval that a failed run uses up; give it to Once",
	},
	observeOption: {
		name: "Observe", takes: aSecret,
		places: onAcquire | onYield | onAttach,
	},
	renewedHook: {
		name: "Hooks.Renewed", takes: aSecret,
		places: onNew, why: "its event is of many leases; give it to New",
	},
	degradedHook: {
		name: "Hooks.Degraded", takes: aSecret,
		places: onNew, why: "its event is of many leases; give it to New",
	},
}

// checkMeaning rejects options without a meaning in their place.
func (s *settings) checkMeaning(name string) error {
	for at, left := range s.given {
		for ; left != 0; left &= left - 1 {
			id, p := optionID(bits.TrailingZeros32(uint32(left))), s.places[at]
			if !optionRules[id].places.has(p) {
				return invalid("%s given to %s: %s", optionRules[id].name, p.of(name), optionRules[id].whyNot(p))
			}
		}
	}
	return nil
}

// checkOfMany rejects options for a single call, given for many calls.
func checkOfMany(what string, options []Option) error {
	for i := range options {
		rule := &optionRules[options[i].id]
		if options[i].id != noOption && !rule.places.has(toMany) {
			return invalid("%s given to %s: %s", rule.name, what, rule.whyNot(toMany))
		}
	}
	return nil
}

// of describes a lock's place, for errors.
func (p place) of(name string) string {
	if p == toNew {
		return placeTexts[p].format
	}
	return fmt.Sprintf(placeTexts[p].format, name)
}

// whyNot returns why the option has no meaning in a place.
func (r *optionRule) whyNot(p place) string {
	if onOnce.has(p) && r.onOnce != "" {
		return r.onOnce
	}
	return r.why
}
