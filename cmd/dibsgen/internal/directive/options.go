package directive

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dibslock/dibs"
)

// An Option is a directive's option: a word for dibs.ParseOptions.
type Option struct {
	word string // as ParseOptions accepts it
	name string // of the function in package dibs
	args []any  // of that function: time.Duration, int or string
}

// functions are the functions of package dibs by the keys of dibs.ParseOptions.
var functions = map[string]string{
	"ttl": "TTL", "wait": "Wait", "timeout": "Timeout", "minhold": "MinHold", "maxhold": "MaxHold",
	"attempts": "Attempts", "label": "Label", "norenew": "NoRenew", "reentrant": "Reentrant",
}

// isOption reports whether a word is an option, perhaps with a bad value.
func isOption(word string) bool {
	key, _, _ := strings.Cut(word, "=")
	return functions[key] != ""
}

// parseOptions parses all words, by the rules of dibs.ParseOptions.
func parseOptions(kind Kind, interval time.Duration, rest words) (options []Option, wrong Errors) {
	var all []string
	for word, at := range rest.each {
		key, value, _ := strings.Cut(word, "=")
		switch _, err := dibs.ParseOptions(word); {
		case err != nil && functions[key] == "":
			_, why, _ := strings.Cut(reason(err), ": ") // behind the word, which ParseOptions hides if it may be a secret
			return nil, append(wrong, fail(at, "option %q: %s; the parts of a name are joined with +, several names with a comma", key, why))
		case err != nil:
			wrong = append(wrong, fail(at, "%s", reason(err)))
			continue
		case kind == Once && (key == "wait" || key == "attempts"):
			wrong = append(wrong, fail(at, "option %q: //dibs:once does not wait; remove it", key))
			continue
		}
		options = append(options, newOption(word, key, value))
		all = append(all, word)
	}
	if _, err := dibs.ParseOptions(strings.Join(all, " ")); err != nil {
		return nil, append(wrong, fail(rest.offset, "%s", reason(err)))
	}
	if err := checkInterval(interval, options, rest.offset); err != nil {
		wrong = append(wrong, err)
	}
	return options, wrong
}

// checkInterval rejects a MaxHold below the interval, which is the MinHold of the job.
func checkInterval(interval time.Duration, options []Option, offset int) *Error {
	i := slices.IndexFunc(options, func(o Option) bool { return o.name == "MaxHold" })
	if i < 0 {
		return nil
	}
	if longest, _ := options[i].args[0].(time.Duration); longest != 0 && longest < interval {
		return fail(offset, `option "maxhold": %v is below the interval %v`, longest, interval)
	}
	return nil
}

// reason returns an error of ParseOptions without the text of ErrInvalid.
func reason(err error) string {
	return strings.TrimPrefix(err.Error(), dibs.ErrInvalid.Error()+": ")
}

// newOption returns the option of a valid word.
func newOption(word, key, value string) Option {
	o := Option{word: word, name: functions[key]}
	switch key {
	case "norenew", "reentrant":
	case "label":
		o.args = []any{value}
	case "attempts":
		number, text, _ := strings.Cut(value, "/")
		n, _ := strconv.Atoi(number)
		d, _ := time.ParseDuration(text)
		o.args = []any{n, d}
	default:
		d, _ := time.ParseDuration(value)
		o.args = []any{d}
	}
	return o
}

// Code returns the option as a Go expression, given the names for the packages dibs and time.
func (o Option) Code(dibsName, timeName string) string {
	args := make([]string, len(o.args))
	for i, arg := range o.args {
		switch arg := arg.(type) {
		case time.Duration:
			args[i] = DurationCode(arg, timeName)
		case int:
			args[i] = strconv.Itoa(arg)
		case string:
			args[i] = strconv.Quote(arg)
		}
	}
	return dibsName + "." + o.name + "(" + strings.Join(args, ", ") + ")"
}

// UsesTime reports whether the code uses package time.
func (o Option) UsesTime() bool {
	return slices.ContainsFunc(o.args, func(arg any) bool {
		d, ok := arg.(time.Duration)
		return ok && d != 0
	})
}

var units = []struct {
	size time.Duration
	name string
}{
	{time.Hour, "Hour"}, {time.Minute, "Minute"}, {time.Second, "Second"},
	{time.Millisecond, "Millisecond"}, {time.Microsecond, "Microsecond"}, {time.Nanosecond, "Nanosecond"},
}

// DurationCode returns a duration as a Go expression, such as 3 * time.Second.
func DurationCode(d time.Duration, timeName string) string {
	if d == 0 {
		return "0"
	}
	for _, unit := range units {
		switch count := d / unit.size; {
		case d%unit.size != 0:
		case count == 1:
			return timeName + "." + unit.name
		default:
			return strconv.FormatInt(int64(count), 10) + " * " + timeName + "." + unit.name
		}
	}
	return "" // not reached: every duration is a number in nanoseconds
}
