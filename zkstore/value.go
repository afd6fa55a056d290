package zkstore

import (
	"encoding/json"
	"math"
	"time"

	"github.com/dibslock/dibs/driver"
)

// A value is the JSON in an entry of dibs.
type value struct {
	Token   string `json:"dibs"`
	Client  string `json:"client"`
	TTL     int64  `json:"ttl"`               // ms
	Fence   uint64 `json:"fence,omitempty"`   // recorded by a renewal
	Waiting bool   `json:"waiting,omitempty"` // it belongs to a multi-lock that waits for another name
	Since   int64  `json:"since,omitempty"`   // ms since 1970 by the client's clock, when it joined; for Inspect only
}

// newValue returns the value for a request's entry.
func newValue(r driver.AcquireRequest) value {
	return value{Token: r.Token, Client: r.Client, TTL: milliseconds(leaseTTL(r)), Since: time.Now().UnixMilli()}
}

// leaseTTL is how long a crashed holder keeps the name.
func leaseTTL(r driver.AcquireRequest) time.Duration { return max(r.TTL, r.MinHold) }

func (v value) bytes() []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // it has no field that cannot be encoded
	}
	return text
}

// parseValue reads a value. It returns false if dibs did not write it.
func parseValue(data []byte) (v value, ok bool) {
	if json.Unmarshal(data, &v) != nil || v.Token == "" || v.TTL < 0 || v.TTL > milliseconds(math.MaxInt64-time.Second) {
		return value{}, false
	}
	return v, true
}

func (v value) ttl() time.Duration { return time.Duration(v.TTL) * time.Millisecond }

// milliseconds rounds up.
func milliseconds(d time.Duration) int64 { return int64((d + time.Millisecond - 1) / time.Millisecond) }
