package wire

import "strings"

// RedissonChannel returns the channel on which the release of a lock key is published in
// Redisson mode.
func RedissonChannel(key string) string {
	if strings.Contains(key, "{") {
		return "redisson_lock__channel:" + key
	}
	return "redisson_lock__channel:{" + key + "}"
}
