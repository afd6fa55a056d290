package directive

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/memstore"
)

// An Option is a directive's option: a word for dibs.ParseOptions.
type Option struct {
	word string // as ParseOptions accepts it
	name string // of the function in package dibs
	args []any  // of that function: a time.Duration, or code
}

// isOption reports whether a word is an option, perhaps with a bad value. It is, if ParseOptions
// accepts its key with a good one.
func isOption(word string) bool {
	key, _, _ := strings.Cut(word, "=")
	for _, good := range []string{key, key + "=1s", key + "=1/1s"} {
		if options, err := dibs.ParseOptions(good); err == nil && len(options) == 1 {
			return true
		}
	}
	return false
}

// parseOptions parses all words, by the rules of dibs.ParseOptions and of the primitive.
func parseOptions(kind Kind, interval time.Duration, rest words) (options []Option, wrong Errors) {
	var all []string
	for word, at := range rest.each {
		parsed, err := dibs.ParseOptions(word)
		switch {
		case err != nil && !isOption(word):
			key, _, _ := strings.Cut(word, "=")
			_, why, _ := strings.Cut(reason(err), ": ") // behind the word, which ParseOptions hides if it may be a secret
			return nil, append(wrong, fail(at, "option %q: %s; the parts of a name are joined with +, several names with a comma", key, why))
		case err != nil:
			wrong = append(wrong, fail(at, "%s", reason(err)))
			continue
		}
		if err := rejection(kind, driver.MinTTL, parsed); err != nil {
			wrong = append(wrong, fail(at, "%s", reason(err)))
			continue
		}
		options = append(options, newOption(word, parsed[0]))
		all = append(all, word)
	}
	parsed, err := dibs.ParseOptions(strings.Join(all, " "))
	if err == nil {
		err = rejection(kind, cmp.Or(interval, driver.MinTTL), parsed) // the interval may be missing
	}
	if err != nil {
		wrong = append(wrong, fail(rest.offset, "%s", reason(err)))
	}
	return options, wrong
}

// rejection returns the error with which package dibs rejects a call with these options, or nil. The
// call sends nothing, because its context has ended.
func rejection(kind Kind, interval time.Duration, options []dibs.Option) error {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	const name = "…"
	nothing := func(context.Context) error { return nil }
	locks := dibs.New(memstore.New())
	var err error
	switch kind {
	case Once:
		err = locks.Once(name, interval).Do(ctx, nothing, options...)
	default:
		err = locks.Mutex(name).Do(ctx, nothing, options...)
	}
	if errors.Is(err, dibs.ErrInvalid) {
		return err
	}
	return nil
}

// reason returns an error of package dibs without the text of ErrInvalid.
func reason(err error) string {
	return strings.TrimPrefix(err.Error(), dibs.ErrInvalid.Error()+": ")
}

// newOption returns the option of a valid word. Its text is a call of its function.
func newOption(word string, parsed dibs.Option) Option {
	name, list, _ := strings.Cut(parsed.String(), "(")
	o := Option{word: word, name: name}
	for arg := range strings.SplitSeq(strings.TrimSuffix(list, ")"), ", ") {
		d, err := time.ParseDuration(arg)
		switch {
		case arg == "":
		case err == nil && strings.Trim(arg, "0123456789") != "":
			o.args = append(o.args, d)
		default:
			o.args = append(o.args, arg)
		}
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
		case string:
			args[i] = arg
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
