package main

import (
	"context"
	"errors"
	"strings"
	"testing"
)

func TestNodesOfAQuorumAreDistinct(t *testing.T) {
	t.Parallel()
	hosts := map[string][]string{
		"a": {"10.0.0.1"}, "b": {"10.0.0.2"}, "alias": {"10.0.0.9", "10.0.0.1"}, "c": {"10.0.0.3"},
		"10.0.0.1": {"10.0.0.1"}, "::1": {"::1"}, "localhost": {"127.0.0.1", "::1"},
	}
	find := func(_ context.Context, host string) ([]string, error) {
		if found, ok := hosts[host]; ok {
			return found, nil
		}
		return nil, errors.New("no such host")
	}
	for urls, same := range map[string]string{
		"redis://a:1/0 redis://b:1/0 redis://c:1/0":                               "",
		"redis://a:1/0 redis://a:2/0 redis://c:1/0":                               "",
		"redis://gone:1/0 redis://other:1/0 redis://c:1/0":                        "",
		"redis://a:1/0 redis://b:1/0 redis://a:1/2":                               "nodes 0 and 2",
		"redis://a:1/0 redis://alias:1/0 redis://c:1/0":                           "nodes 0 and 1",
		"redis://c:1/0 redis://10.0.0.1:1/0 rediss://a:1/0":                       "nodes 1 and 2",
		"redis://localhost:1/0 redis://b:1/0 redis://[::1]:1/0":                   "nodes 0 and 2",
		"redis+sentinel://a:1,b:1/m/0 redis+sentinel://a:1,b:1/n/0 redis://c:1/0": "",
	} {
		var nodes []node
		for _, url := range strings.Fields(urls) {
			nodes = append(nodes, node{location: url})
		}
		err := checkDistinct(nodes, find)
		if same == "" && err != nil || same != "" && (err == nil || !strings.Contains(err.Error(), same)) {
			t.Errorf("%s: error %v, want %q", urls, err, same)
		}
	}
}
