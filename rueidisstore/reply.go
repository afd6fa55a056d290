package rueidisstore

import (
	"maps"
	"slices"

	"github.com/dibslock/dibs/redisstore"
	"github.com/redis/rueidis"
)

// value turns a message into what a server says that speaks RESP2: only nil, int64,
// string, and lists of these. An error within a list is one of the whole.
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

// pairs makes a map a list of keys and values. Their order is lost in rueidis.
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

// text reads what is left: strings, doubles and big numbers as they are written,
// verbatim strings, which begin with three letters for their kind, and errors. The text
// of these is whole here; the error's own lacks its ERR.
func text(m *rueidis.RedisMessage) (any, error) {
	const kind = len("txt:")
	s, err := m.ToString()
	switch _, refused := rueidis.IsRedisErr(err); {
	case refused:
		return nil, redisstore.ServerError(s)
	case err != nil:
		return nil, err
	case !m.IsString() && !m.IsFloat64() && len(s) >= kind && s[kind-1] == ':':
		return s[kind:], nil
	}
	return s, nil
}
