package dibs

import (
	"slices"
	"strconv"
	"strings"
	"time"
)

// ParseOptions returns the options of a text, as an environment variable or
// a configuration file may have it:
//
//	ttl=20s wait=3s label=web
//
// Spaces separate the words. Durations are those of [time.ParseDuration].
//
//	ttl=20s            TTL
//	wait=3s            Wait
//	timeout=1s         Timeout
//	minhold=1m         MinHold
//	maxhold=1h         MaxHold
//	attempts=5/200ms   Attempts(5, 200*time.Millisecond)
//	label=web          Label
//	norenew            NoRenew
//	reentrant          Reentrant
//	retryfailed        RetryFailed
//
// A word that is unknown or repeated, and a value that is not valid, is an ErrInvalid. An
// empty text has no options.
func ParseOptions(text string) ([]Option, error) {
	var options []Option
	seen := make(map[string]bool)
	for i, word := range strings.Fields(text) {
		key, value, hasValue := strings.Cut(word, "=")
		if seen[key] {
			return nil, invalid("option %s is given twice", shown(i, key, hasValue))
		}
		seen[key] = true
		option, err := parseOption(key, value, hasValue)
		if err != nil {
			return nil, invalid("option %s: %v", shown(i, key, hasValue), err) // without the value: it may be a secret
		}
		options = append(options, option)
	}
	set := defaults().with(atClient, options)
	set.use = ofLock
	const name = "options" // not the text, whose values may be secrets
	if err := set.checkValues(name); err != nil {
		return nil, err
	}
	return options, nil
}

// shown returns a word for an error, without its value. What looks like no option may be a secret: a
// part of a value that has a space, or the value of another variable. Then only its position is shown.
func shown(i int, key string, hasValue bool) string {
	const longest, letters = 12, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	looksLikeOption := hasValue && key != "" && len(key) <= longest && strings.Trim(key, letters) == ""
	if looksLikeOption || slices.Contains(optionKeys, key) {
		return strconv.Quote(key)
	}
	return strconv.Itoa(i + 1)
}

var optionKeys = []string{"ttl", "wait", "timeout", "minhold", "maxhold", "attempts", "label", "norenew", "reentrant", "retryfailed"}

// An optionError is why a word is not an option.
type optionError string

func (e optionError) Error() string { return string(e) }

func parseOption(key, value string, hasValue bool) (Option, error) {
	flag := map[string]Option{"norenew": NoRenew(), "reentrant": Reentrant(), "retryfailed": RetryFailed()}[key]
	switch {
	case flag != nil && hasValue:
		return nil, optionError("takes no value")
	case flag != nil:
		return flag, nil
	}
	duration := map[string]func(time.Duration) Option{"ttl": TTL, "wait": Wait, "timeout": Timeout, "minhold": MinHold, "maxhold": MaxHold}[key]
	switch {
	case duration != nil:
		d, err := time.ParseDuration(value)
		if err != nil {
			return nil, optionError(`want a duration such as "20s"`)
		}
		return duration(d), nil
	case key == "attempts":
		return parsePair(value, "5/200ms", Attempts)
	case key == "label" && value == "":
		return nil, optionError("empty")
	case key == "label":
		return Label(value), nil
	}
	last := len(optionKeys) - 1
	return nil, optionError("unknown; want " + strings.Join(optionKeys[:last], ", ") + " or " + optionKeys[last])
}

// parsePair parses a number and a duration, as in the example.
func parsePair(value, example string, option func(int, time.Duration) Option) (Option, error) {
	number, text, _ := strings.Cut(value, "/")
	n, err := strconv.Atoi(number)
	d, err2 := time.ParseDuration(text)
	if err != nil || err2 != nil {
		return nil, optionError("want a number and a duration, such as " + strconv.Quote(example))
	}
	return option(n, d), nil
}
