package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/dibslock/dibs"
)

// Error messages show no whole owner token.
func TestErrorsShowNoToken(t *testing.T) {
	const token = "web-1:42:AAAABBBBCCCCDDDD:abcdefghijklmnopqrstuvwx:label"
	busy := &dibs.BusyError{Name: "n", Holder: token, Remaining: time.Second}
	for _, err := range []error{busy, errors.Join(errors.New("x"), busy), exitWith(1, busy)} {
		var out bytes.Buffer
		for _, asJSON := range []bool{false, true} {
			con := &console{err: &out, json: asJSON}
			con.finish(err)
		}
		if text := out.String(); strings.Contains(text, "AAAA") || strings.Contains(text, "abcd") || !strings.Contains(text, "web-1:42") {
			t.Errorf("have %s", text)
		}
	}
}
