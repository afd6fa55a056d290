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

//go:embed lua/entry.lua
var entryLua string

//go:embed lua/grant.lua
var grantLua string

//go:embed lua/node.lua
var nodeLua string

//go:embed lua/vote.lua
var voteLua string

//go:embed lua/acquire.lua
var acquireLua string

//go:embed lua/release.lua
var releaseLua string

//go:embed lua/extend.lua
var extendLua string

//go:embed lua/extend_key.lua
var extendKeyLua string

//go:embed lua/inspect.lua
var inspectLua string

//go:embed lua/acquire_all.lua
var acquireAllLua string

//go:embed lua/coalesced.lua
var coalescedLua string

//go:embed lua/resize.lua
var resizeLua string

//go:embed lua/revoke.lua
var revokeLua string

// A script is sent by its hash, and as text if the server does not know the hash.
type script struct{ text, sha string }

func newScript(text string) *script {
	text = strings.NewReplacer(
		"--#include fence.lua\n", fenceLua,
		"--#include holders.lua\n", holdersLua,
		"--#include queue.lua\n", queueLua,
		"--#include entry.lua\n", entryLua,
		"--#include grant.lua\n", grantLua,
		"--#include node.lua\n", nodeLua,
	).Replace(text)
	text = stripComments(text)
	sum := sha1.Sum([]byte(text))
	return &script{text: text, sha: hex.EncodeToString(sum[:])}
}

// stripComments removes comment lines and indentation, so that less is sent to a server
// that does not know the script.
func stripComments(text string) string {
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
	acquireScript    = newScript(acquireLua)
	voteScript       = newScript(voteLua)
	releaseScript    = newScript(releaseLua)
	extendScript     = newScript(extendLua)
	extendKeyScript  = newScript(extendKeyLua)
	inspectScript    = newScript(inspectLua)
	acquireAllScript = newScript(acquireAllLua)
	coalescedScript  = newScript(coalescedLua)
	resizeScript     = newScript(resizeLua)
	revokeScript     = newScript(revokeLua)
)
