package wire

import (
	"crypto/sha1"
	"embed"
	"encoding/hex"
	"strings"

	"github.com/dibslock/dibs/redisstore/redisconn"
)

//go:embed lua/*.lua
var lua embed.FS

// The scripts. They never change.
var (
	AcquireScript    = load("acquire")
	VoteScript       = load("vote")
	ReleaseScript    = load("release")
	ExtendScript     = load("extend")
	ExtendKeyScript  = load("extend_key")
	InspectScript    = load("inspect")
	AcquireAllScript = load("acquire_all")
	CoalescedScript  = load("coalesced")
	ResizeScript     = load("resize")
	RevokeScript     = load("revoke")
	WantedScript     = load("wanted")
)

// load returns a script with the files that it includes. It removes comment lines and
// indentation, so that less is sent to a server that does not know the script.
func load(name string) *redisconn.Script {
	text := withIncludes(name)
	sum := sha1.Sum([]byte(text))
	return &redisconn.Script{Text: text, Hash: hex.EncodeToString(sum[:])}
}

func withIncludes(name string) string {
	const include = "--#include "
	source, err := lua.ReadFile("lua/" + strings.TrimSuffix(name, ".lua") + ".lua")
	if err != nil {
		panic(err) // a script includes a file that does not exist
	}
	var b strings.Builder
	for line := range strings.Lines(string(source)) {
		line = strings.TrimSpace(line)
		if included, ok := strings.CutPrefix(line, include); ok {
			b.WriteString(withIncludes(included))
		} else if line != "" && !strings.HasPrefix(line, "--") {
			b.WriteString(line + "\n")
		}
	}
	return b.String()
}
