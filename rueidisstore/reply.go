package rueidisstore

import (
	"maps"
	"slices"

	"github.com/dibslock/dibs/redisstore/redisconn"
	"github.com/redis/rueidis"
)

// value converts a message to its RESP2 value: nil, int64, string, or a list of these. An error
// within a list is returned as the whole list's error.
func value(m *rueidis.RedisMessage) (any, error) {
	switch {
	case m.IsNil():
		return nil, nil
	case m.IsInt64():
		return m.ToInt64()
	case m.IsArray():
		list, err := m.ToArray()
		if err != nil {
			return nil, err
		}
		return values(list)
	case m.IsMap():
		return pairs(m)
	case m.IsBool():
		if yes, err := m.ToBool(); err != nil || !yes {
			return int64(0), err
		}
		return int64(1), nil
	}
	return text(m)
}

func values(list []rueidis.RedisMessage) (any, error) {
	all := make([]any, len(list))
	for i := range list {
		var err error
		if all[i], err = value(&list[i]); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// pairs converts a map to a list with keys and values, sorted by key: rueidis does not keep the
// server's order.
func pairs(m *rueidis.RedisMessage) (any, error) {
	fields, err := m.ToMap()
	if err != nil {
		return nil, err
	}
	all := make([]any, 0, 2*len(fields))
	for _, key := range slices.Sorted(maps.Keys(fields)) {
		field := fields[key]
		v, err := value(&field)
		if err != nil {
			return nil, err
		}
		all = append(all, key, v)
	}
	return all, nil
}

// text converts the remaining types. Strings, doubles and big numbers are returned as they are
// written. A verbatim string loses its prefix, such as "txt:". An error reply is returned as a
// ServerError with its whole text; rueidis' error lacks "ERR".
func text(m *rueidis.RedisMessage) (any, error) {
	const prefix = len("txt:")
	s, err := m.ToString()
	switch _, refused := rueidis.IsRedisErr(err); {
	case refused:
		return nil, redisconn.ServerError(s)
	case err != nil:
		return nil, err
	case !m.IsString() && !m.IsFloat64() && len(s) >= prefix && s[prefix-1] == ':':
		return s[prefix:], nil
	}
	return s, nil
}
