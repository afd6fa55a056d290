package etcdtest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
)

// gateway connects for each request, because members end. It uses no proxy of the environment.
var gateway = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

// Call sends a request to the gateway for JSON, as in "/v3/kv/range", and decodes the answer.
func (s *Server) Call(ctx context.Context, path string, request, answer any) error {
	body, err := json.Marshal(request)
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+s.Endpoint()+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	response, err := gateway.Do(r)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s%s: %s: %s", s.Endpoint(), path, response.Status, text)
	}
	return json.Unmarshal(text, answer)
}
