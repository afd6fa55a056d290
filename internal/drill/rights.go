package drill

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/redistest"
	"github.com/dibslock/dibs/redisstore"
	"github.com/dibslock/dibs/storetest"
)

// Rights checks that a user with the least permissions that docs/spec.md lists can do
// all that the law asks of a store, and that each of these commands is needed for it.
// Some more are what only the library sends.
func (o Opener) Rights(t *testing.T, more ...string) {
	const ours = "+info" // by which the test learns what was used
	rights := strings.Join(append(more, least(t), ours), " ")
	server := redistest.Start(t)
	server.MustCmd(t, append([]string{"ACL", "SETUSER", "default"}, strings.Fields(rights)...)...)
	t.Run("law", func(t *testing.T) {
		storetest.Run(t, func(t *testing.T) driver.Store {
			return o.Single(t, server.Addr(), redisstore.Prefix("lock:"+t.Name()+":"))
		})
	})
	if t.Failed() {
		t.Logf("with %s", rights)
		return
	}
	used := used(t, server)
	t.Logf("FIGURE commands: %q", slices.Sorted(maps.Keys(used)))
	for _, word := range strings.Fields(rights) {
		if command, is := strings.CutPrefix(word, "+"); is && !used[command] {
			t.Errorf("nothing needs %s; used were %q", word, slices.Sorted(maps.Keys(used)))
		}
	}
}

// ClusterRights checks that in a cluster one more is enough, and some that the library
// sends.
func (o Opener) ClusterRights(t *testing.T, more ...string) {
	c := redistest.StartCluster(t, 3, 0)
	rights := strings.Fields(strings.Join(append(more, least(t), "+cluster|info"), " "))
	for _, node := range c.Nodes() {
		node.MustCmd(t, append([]string{"ACL", "SETUSER", "default"}, rights...)...)
	}
	t.Run("law", func(t *testing.T) {
		storetest.Run(t, func(t *testing.T) driver.Store {
			return o.Cluster(t, c.Addrs(), redisstore.Prefix("lock:"+t.Name()+":"))
		})
	})
}

// VoteRights checks what a node of a quorum has to allow besides.
func (o Opener) VoteRights(t *testing.T, more ...string) {
	const vote = "~dibs:node +info +lastsave"
	if text := spec(t); !strings.Contains(text, "`"+vote+"`") {
		t.Errorf("docs/spec.md does not list %s", vote)
	}
	server := redistest.Start(t)
	server.MustCmd(t, append([]string{"ACL", "SETUSER", "default"}, strings.Fields(strings.Join(append(more, least(t), vote), " "))...)...)
	t.Run("law", func(t *testing.T) {
		storetest.RunVotes(t, func(t *testing.T) driver.Store {
			return o.Single(t, server.Addr(), redisstore.Prefix("lock:"+t.Name()+":"))
		})
	})
}

// used returns the commands that a server was sent, those inside scripts included.
func used(t *testing.T, server *redistest.Server) map[string]bool {
	t.Helper()
	text, _ := server.MustCmd(t, "INFO", "commandstats").(string)
	all := make(map[string]bool)
	for line := range strings.Lines(text) {
		name, _, ok := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":")
		if ok && strings.HasPrefix(line, "cmdstat_") {
			all[name] = true
		}
	}
	return all
}

// least reads the least permissions in docs/spec.md, less the user's name and password.
func least(t *testing.T) string {
	t.Helper()
	_, rest, found := strings.Cut(spec(t), "ACL SETUSER dibs on >password ")
	line, _, ends := strings.Cut(rest, "```")
	if !found || !ends {
		t.Fatal("docs/spec.md lists no permissions")
	}
	return line
}

func spec(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "spec.md"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
