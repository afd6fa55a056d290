package etcdtest

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
)

// healthy returns nil if the server on a connection reports that it can serve requests.
func healthy(conn net.Conn) error {
	request, err := http.NewRequest(http.MethodGet, "http://"+conn.RemoteAddr().String()+"/health", nil)
	if err != nil {
		return err
	}
	if err := request.Write(conn); err != nil {
		return err
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	var answer struct{ Health, Reason string }
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return err
	}
	if answer.Health != "true" {
		return fmt.Errorf("the server is not healthy: %s", answer.Reason)
	}
	return nil
}
