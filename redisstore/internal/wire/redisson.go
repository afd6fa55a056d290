package wire

import "strings"

// Registry returns the key of Spring's registry that has a prefix, or "".
func Registry(prefix string) string {
	registry, ok := strings.CutSuffix(prefix, ":")
	if !ok || strings.Contains(registry, ":") {
		return ""
	}
	return registry
}

// RedissonChannel returns the channel on which the release of a lock key is published in
// Redisson mode.
func RedissonChannel(key string) string {
	if strings.Contains(key, "{") {
		return "redisson_lock__channel:" + key
	}
	return "redisson_lock__channel:{" + key + "}"
}
