package waitgraph

import "fmt"

// String returns host and process, and the ID if another client has the same host and process.
func (p Process) String() string {
	text := fmt.Sprintf("%s:%d", p.Host, p.PID)
	if p.twin {
		text += "/" + p.ID
	}
	return text
}
