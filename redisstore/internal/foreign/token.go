package foreign

import (
	"strconv"
	"strings"
)

// ClientOf returns the client in a token of the form host:pid:client:lease, with an optional label.
// It returns "" for another token. The scripts make the same test.
func ClientOf(token string) string {
	host := strings.IndexByte(token, ':')
	if host < 1 {
		return ""
	}
	pid := host + 1
	for pid < len(token) && token[pid] >= '0' && token[pid] <= '9' {
		pid++
	}
	if pid == host+1 || pid == len(token) || token[pid] != ':' {
		return ""
	}
	end := pid + 1 + strings.IndexByte(token[pid+1:], ':')
	if end <= pid+1 || end == len(token)-1 || strings.ContainsAny(token[:end], " \t\r\n\v\f") {
		return ""
	}
	return token[:end]
}

// SplitValue returns the token in a lock's value, and the fence before it, if any. A value is split
// only between a number and a token made by dibs, as in value.lua. A fence with more than 64 bits
// is returned as zero.
func SplitValue(value string) (token string, fence uint64) {
	number, token, _ := strings.Cut(value, " ")
	if number == "" || strings.Trim(number, "0123456789") != "" || ClientOf(token) == "" {
		return value, 0
	}
	fence, err := strconv.ParseUint(number, 10, 64)
	if err != nil {
		fence = 0
	}
	return token, fence
}
