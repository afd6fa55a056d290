package dibs

import (
	"slices"
	"strconv"
	"strings"
	"time"
)

// ParseOptions returns the options in a text, for example from an environment variable or a
// configuration file:
//
//	ttl=20s wait=3s label=web
//
// Spaces separate the words. Durations have the format of [time.ParseDuration].
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
// An unknown word, a repeated word, or an invalid value is ErrInvalid. An empty text contains no
// options.
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
	if what, why := set.badValue(); what != "" {
		return nil, invalid("%s: %s", what, why) // without the text, whose values may be secrets
	}
	return options, nil
}

// shown returns a word for an error, without its value. A word unlike an option may be part of a
// secret with spaces, or another variable's value. For such a word, shown returns only its
// position.
func shown(i int, key string, hasValue bool) string {
	const longest, letters = 12, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	looksLikeOption := hasValue && key != "" && len(key) <= longest && strings.Trim(key, letters) == ""
	if looksLikeOption || slices.Contains(optionKeys(), key) {
		return strconv.Quote(key)
	}
	return strconv.Itoa(i + 1)
}

// optionKeys returns the keys of all options. Only errors need them.
func optionKeys() (keys []string) {
	for _, rule := range optionRules[:] {
		if rule.key != "" {
			keys = append(keys, rule.key)
		}
	}
	return keys
}

// An optionError says why a word is not an option.
type optionError string

func (e optionError) Error() string { return string(e) }

func parseOption(key, value string, hasValue bool) (Option, error) {
	id := slices.IndexFunc(optionRules[:], func(rule optionRule) bool { return key != "" && rule.key == key })
	if id < 0 {
		keys := optionKeys()
		last := len(keys) - 1
		return Option{}, optionError("unknown; want " + strings.Join(keys[:last], ", ") + " or " + keys[last])
	}
	o := Option{id: optionID(id)}
	err := o.parseArguments(value, hasValue)
	return o, err
}

func (o *Option) parseArguments(value string, hasValue bool) error {
	var ok bool
	switch optionRules[o.id].takes {
	case noArguments:
		if hasValue {
			return optionError("takes no value")
		}
	case aDuration:
		if o.duration, ok = parseDuration(value); !ok {
			return optionError(`want a duration such as "20s"`)
		}
	case aNumberAndDuration:
		number, duration, _ := strings.Cut(value, "/")
		n, err := strconv.Atoi(number)
		if o.duration, ok = parseDuration(duration); !ok || err != nil {
			return optionError(`want a number and a duration, such as "5/200ms"`)
		}
		o.number = n
	case aText:
		if value == "" {
			return optionError("empty")
		}
		o.text = value
	}
	return nil
}

func parseDuration(text string) (time.Duration, bool) {
	d, err := time.ParseDuration(text)
	return d, err == nil
}
