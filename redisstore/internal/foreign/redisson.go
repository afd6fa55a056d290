package foreign

import (
	"strings"

	"github.com/dibslock/dibs/driver"
)

// innerKey matches the auxiliary keys of Redisson and python-redis-lock.
var innerKey = lazily(`^redisson_(unlock_latch|lock_token|lock_queue|lock_timeout):.|:rwlock_timeout:\d+$|^lock-signal:.`)

const innerKind = "auxiliary key of another library"

// IsInner reports whether a key is another library's auxiliary key.
func IsInner(key string) bool { return innerKey().MatchString(key) }

// redissonOwner is a field in a Redisson lock: a client id and a thread id. A write lock adds a
// suffix.
var redissonOwner = lazily(`^[0-9a-fA-F]{8}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{12}:[^\s:]{1,64}(:write)?$`)

// count is the number of times an owner acquired its lock.
var count = lazily(`^[1-9][0-9]{0,9}$`)

const modeField = "mode" // "read" or "write" in an RReadWriteLock; dibsMode in a dibs lock

// dibsMode is the mode of a dibs lock in Redisson's form: see redisson.lua.
const dibsMode = "dibs"

// IsRedissonOwner reports whether a token looks like an owner in a Redisson lock.
func IsRedissonOwner(token string) bool { return redissonOwner().MatchString(token) }

// The Kinds of the locks that a store in Redisson mode shares: Redisson's and dibs'.
const (
	RLockKind = "Redisson RLock"
	ModeKind  = "mutex (redisson)"
)

func describeHash(v Value) Description {
	mode, owners := "", []Item(nil)
	for _, i := range v.Items {
		if i.Name == modeField {
			mode = i.Value
			continue
		}
		owners = append(owners, i)
	}
	held := all(owners, func(i Item) bool { return IsRedissonOwner(i.Name) && count().MatchString(i.Value) })
	switch {
	case held && (mode == "read" || mode == "write"):
		return redissonReadWrite(v, mode, owners)
	case held && mode == "" && v.Size == 1 && !strings.HasSuffix(owners[0].Name, ":write"):
		return Description{
			Kind: RLockKind, Lock: true, Unique: true, Holders: exclusive(owners[0].Name, owners[0].Name, v), Holding: 1,
			Release: Rule{
				Channel: RedissonChannel(v.Key), Message: "0",
				Queue: redissonKey("redisson_lock_queue", v.Key),
			},
		}
	case mode == dibsMode && v.Size == 2 && len(owners) == 1 && owners[0].Value == "1":
		token, fence := SplitValue(owners[0].Name)
		d := Description{Kind: ModeKind, Lock: true, Unique: true, Holders: exclusive(token, "", v), Holding: 1}
		d.Holders[0].Fence = fence
		return d
	}
	return data(v)
}

// redissonReadWrite describes an RReadWriteLock. In the mode "write", the writer may also hold read
// locks.
func redissonReadWrite(v Value, mode string, owners []Item) Description {
	d := Description{Kind: "Redisson " + mode + " lock", Lock: true, Unique: true, Holding: v.Size - 1}
	d.Release = Rule{Channel: redissonKey("redisson_rwlock", v.Key), Message: "0"}
	if mode == "write" {
		d.Release.Message = "1"
	}
	for _, o := range owners {
		h := driver.Holder{Token: o.Name, Owner: o.Name, Remaining: v.TTL, Weight: 1}
		if strings.HasSuffix(o.Name, ":write") {
			h.Weight = 0
		}
		d.Holders = append(d.Holders, h)
	}
	return d
}

// RedissonChannel returns the channel on which Redisson publishes the release of an RLock.
func RedissonChannel(key string) string { return redissonKey("redisson_lock__channel", key) }

// redissonKey returns a channel or an auxiliary key. Redisson adds braces unless the name contains
// a brace.
func redissonKey(prefix, name string) string {
	if strings.Contains(name, "{") {
		return prefix + ":" + name
	}
	return prefix + ":{" + name + "}"
}
