package zkstore

import (
	"bytes"
	"encoding/binary"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// A pipedConn is a connection whose server has already sent some bytes.
type pipedConn struct {
	net.Conn
	sent bytes.Buffer
}

func (c *pipedConn) Read(b []byte) (int, error)      { return c.sent.Read(b) }
func (c *pipedConn) Write(b []byte) (int, error)     { return len(b), nil }
func (c *pipedConn) SetReadDeadline(time.Time) error { return nil }

// greeting is a server's first answer.
func greeting(id int64, timeout time.Duration) []byte {
	body := binary.BigEndian.AppendUint32(nil, 0)
	body = binary.BigEndian.AppendUint32(body, uint32(timeout.Milliseconds()))
	body = binary.BigEndian.AppendUint64(body, uint64(id))
	body = append(body, make([]byte, 21)...) // the password and the mark of a read-only server
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)
}

// After a reconnection, the library sees no answer before it restored its watches: it reads the last
// zxid for that without a lock.
func TestAnswersWaitForWatches(t *testing.T) {
	for name, restores := range map[string]bool{"watches": true, "no watches": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				restored := make(chan struct{})
				conn := &pipedConn{}
				conn.sent.Write(append(greeting(7, time.Second), "answer"...))
				w := &wire{Conn: conn, heard: func() {}, restored: restored, disarm: func() {}}
				w.restore = func() {
					select {
					case <-restored:
					default:
						close(restored)
					}
				}
				w.timeout = func(id int64, d time.Duration) error {
					if id != 7 || d != time.Second {
						t.Errorf("session %d with %v", id, d)
					}
					return nil
				}
				for _, n := range []int{4, 37} { // as the library reads them
					if _, err := w.Read(make([]byte, n)); err != nil {
						t.Fatal(err)
					}
				}
				begin := time.Now()
				if restores {
					go func() {
						time.Sleep(time.Millisecond)
						request := binary.BigEndian.AppendUint32(make([]byte, 8), 101)
						if _, err := w.Write(request); err != nil {
							t.Error(err)
						}
					}()
				}
				b := make([]byte, 6)
				if _, err := w.Read(b); err != nil || string(b) != "answer" {
					t.Errorf("%q, %v", b, err)
				}
				want := time.Second
				if restores {
					want = time.Millisecond
				}
				if waited := time.Since(begin); waited != want {
					t.Errorf("the answer waited for %v, want %v", waited, want)
				}
			})
		})
	}
}
