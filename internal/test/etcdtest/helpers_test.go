package etcdtest

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A keyValue is a part of a request or of an answer, in base64.
type keyValue struct {
	Key   string `json:"key"`
	Value string `json:"value,omitempty"`
}

func encode(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }

func put(s *Server, limit time.Duration, key, value string) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	return s.Call(ctx, "/v3/kv/put", keyValue{encode(key), encode(value)}, &struct{}{})
}

func get(s *Server, limit time.Duration, key string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	var answer struct{ Kvs []keyValue }
	if err := s.Call(ctx, "/v3/kv/range", keyValue{Key: encode(key)}, &answer); err != nil {
		return "", err
	}
	if len(answer.Kvs) != 1 {
		return "", errors.New("the key does not exist")
	}
	value, err := base64.StdEncoding.DecodeString(answer.Kvs[0].Value)
	return string(value), err
}

// long is how long a request may take that must succeed.
const long = 20 * time.Second

// eventually repeats an attempt until it returns nil. Requests fail while a cluster elects a leader.
func eventually(t *testing.T, attempt func() error) {
	t.Helper()
	end := time.Now().Add(long)
	for tick := time.NewTicker(20 * time.Millisecond); ; <-tick.C {
		err := attempt()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("after %v: %v", long, err)
		}
	}
}

func mustPut(t *testing.T, s *Server, key, value string) {
	t.Helper()
	eventually(t, func() error { return put(s, long, key, value) })
}

func wantValue(t *testing.T, s *Server, key, want string) {
	t.Helper()
	eventually(t, func() error {
		have, err := get(s, long, key)
		if err == nil && have != want {
			err = fmt.Errorf("%s has %s = %q, want %q", s.Endpoint(), key, have, want)
		}
		return err
	})
}

// processes returns how many processes have a directory in their arguments.
func processes(t *testing.T, dir string) int {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("no /proc")
	}
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	must(t, err)
	count := 0
	for _, file := range files {
		if text, err := os.ReadFile(file); err == nil && strings.Contains(string(text), dir) {
			count++
		}
	}
	return count
}
