package foreign

import (
	"strconv"
	"strings"
	"time"

	"github.com/dibslock/dibs/driver"
)

// symfonyWriter is the member that a sorted set of Symfony has beside the token of an
// exclusive owner.
const symfonyWriter = "__write__"

// symfonyToken is 32 random bytes in base64.
var symfonyToken = lazily(`^[A-Za-z0-9+/]{43}=$`)

// describeSortedSet recognises the locks of Symfony: tokens, with the time at which each
// expires; and the semaphores of redis-semaphore: UUIDs, with the time at which each was
// acquired.
func describeSortedSet(v Value) Description {
	if d, ok := describeSymfony(v); ok {
		return d
	}
	if strings.HasPrefix(v.Key, "semaphore:") && all(v.Items, func(i Item) bool { return uuid().MatchString(i.Name) && !timeOf(i.Value).IsZero() }) {
		d := Description{Kind: "redis-semaphore Semaphore", Lock: true, Holding: v.Size}
		for _, i := range v.Items {
			d.Holders = append(d.Holders, driver.Holder{Token: i.Name, Weight: 1, Remaining: v.TTL})
		}
		return d
	}
	return data(v)
}

func describeSymfony(v Value) (d Description, ok bool) {
	d = Description{Kind: "Symfony read lock", Lock: true, Holding: v.Size}
	weight := 1
	for _, i := range v.Items {
		expires := timeOf(i.Value)
		if expires.IsZero() || i.Name != symfonyWriter && !symfonyToken().MatchString(i.Name) {
			return d, false
		}
		if i.Name == symfonyWriter {
			d.Kind, weight = "Symfony write lock", 0
			d.Holding--
			continue
		}
		left := max(expires.Sub(time.UnixMicro(v.Now)), 0).Truncate(time.Millisecond)
		d.Holders = append(d.Holders, driver.Holder{Token: i.Name, Remaining: left})
	}
	for i := range d.Holders {
		d.Holders[i].Weight = weight
	}
	return d, len(d.Holders) > 0
}

// timeOf reads a score that is a time, in seconds or in milliseconds. It returns zero if
// the number is not a time between 2001 and 2100.
func timeOf(score string) time.Time {
	const least, most = 1e9, 4.1e9 // seconds
	n, err := strconv.ParseFloat(score, 64)
	switch {
	case err != nil:
	case n >= least && n < most:
		return time.UnixMicro(int64(n * 1e6))
	case n >= least*1000 && n < most*1000:
		return time.UnixMicro(int64(n * 1000))
	}
	return time.Time{}
}
