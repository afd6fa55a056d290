package supervise

import (
	"encoding/json"
	"errors"
)

// A startRequest describes a command to start.
type startRequest struct {
	Path     string   `json:"path"`
	Argv     [][]byte `json:"argv"` // bytes, since Linux arguments need not be UTF-8
	Env      [][]byte `json:"env"`
	Terminal bool     `json:"terminal"` // put the command into the foreground

	LeaveDaemons bool `json:"leave_daemons"` // see Rules
}

// A startFailure is a StartError on its way from the watchdog process to the supervisor.
type startFailure struct {
	Code  int    `json:"code"`
	Error string `json:"error"`
}

func startFailureOf(err error) startFailure {
	code := CodeCannotRun
	var failed *StartError
	if errors.As(err, &failed) {
		code = failed.Code
	}
	return startFailure{code, err.Error()}
}

func (f startFailure) text() string {
	line, _ := json.Marshal(f) // cannot fail
	return string(line)
}

func startErrorOf(text string) error {
	var f startFailure
	_ = json.Unmarshal([]byte(text), &f) // the watchdog process is the same program
	return &StartError{f.Code, errors.New(f.Error)}
}

func texts(all [][]byte) []string {
	var s []string
	for _, b := range all {
		s = append(s, string(b))
	}
	return s
}

func rawTexts(all []string) [][]byte {
	var b [][]byte
	for _, s := range all {
		b = append(b, []byte(s))
	}
	return b
}
