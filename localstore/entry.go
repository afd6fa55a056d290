package localstore

import (
	"encoding/json"
	"errors"

	"github.com/dibslock/dibs/kvstore"
)

// An entry is stored as JSON: each name has few holders and waiters, and the file can be read with
// sqlite3.

func encode(e *kvstore.Lock) ([]byte, error) { return json.Marshal(e) }

// decode reads an entry. It rejects entries that encode cannot have written.
func decode(text []byte) (*kvstore.Lock, error) {
	e := new(kvstore.Lock)
	if err := json.Unmarshal(text, e); err != nil {
		return nil, err
	}
	if err := e.Check(); err != nil {
		return nil, err
	}
	if len(e.Holders)+len(e.Queue) == 0 {
		return nil, errEmpty
	}
	return e, nil
}

var errEmpty = errors.New("entry without holder and waiter")
