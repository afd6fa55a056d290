package redisstore

import (
	"crypto/sha1"
	_ "embed" // the scripts are files
	"encoding/hex"
	"strings"
)

//go:embed lua/fence.lua
var fenceLua string

//go:embed lua/holders.lua
var holdersLua string

//go:embed lua/queue.lua
var queueLua string

//go:embed lua/place.lua
var placeLua string

//go:embed lua/take.lua
var takeLua string

//go:embed lua/born.lua
var bornLua string

//go:embed lua/vote.lua
var voteLua string

//go:embed lua/acquire.lua
var acquireLua string

//go:embed lua/release.lua
var releaseLua string

//go:embed lua/extend.lua
var extendLua string

//go:embed lua/bare.lua
var bareLua string

//go:embed lua/inspect.lua
var inspectLua string

//go:embed lua/all.lua
var allLua string

//go:embed lua/many.lua
var manyLua string

//go:embed lua/reweigh.lua
var reweighLua string

//go:embed lua/break.lua
var breakLua string

// A script is sent by its hash, and whole if the server does not know it.
type script struct{ text, sha string }

func newScript(text string) *script {
	text = strings.NewReplacer(
		"--#include fence.lua\n", fenceLua,
		"--#include holders.lua\n", holdersLua,
		"--#include queue.lua\n", queueLua,
		"--#include place.lua\n", placeLua,
		"--#include take.lua\n", takeLua,
		"--#include born.lua\n", bornLua,
	).Replace(text)
	text = bare(text)
	sum := sha1.Sum([]byte(text))
	return &script{text: text, sha: hex.EncodeToString(sum[:])}
}

// bare leaves out lines that are comments, and indentation: that is less to send to a
// server that does not know the script.
func bare(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "--") {
			b.WriteString(line + "\n")
		}
	}
	return b.String()
}

// The scripts never change after this.
var (
	acquireScript = newScript(acquireLua)
	voteScript    = newScript(voteLua)
	releaseScript = newScript(releaseLua)
	extendScript  = newScript(extendLua)
	bareScript    = newScript(bareLua)
	inspectScript = newScript(inspectLua)
	allScript     = newScript(allLua)
	manyScript    = newScript(manyLua)
	reweighScript = newScript(reweighLua)
	breakScript   = newScript(breakLua)
)
