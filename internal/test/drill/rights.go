package drill

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/test/redistest"
	"github.com/dibslock/dibs/redisstore"
	"github.com/dibslock/dibs/storetest"
)

// Rights checks that a user with the minimal permissions in docs/spec.md passes the conformance
// suite, and the suite needs each permission. more are additional permissions for the library.
func (o Opener) Rights(t *testing.T, more ...string) {
	const ours = "+info" // the test uses it to read the command statistics
	rights := strings.Join(append(more, minimalRights(t), ours), " ")
	server := redistest.Start(t)
	server.MustCmd(t, append([]string{"ACL", "SETUSER", "default"}, strings.Fields(rights)...)...)
	t.Run("conformance", func(t *testing.T) {
		storetest.Run(t, func(t *testing.T) driver.Store {
			return o.Single(t, server.Addr(), redisstore.Prefix("lock:"+t.Name()+":"))
		})
	})
	if t.Failed() {
		t.Logf("with %s", rights)
		return
	}
	used := usedCommands(t, server)
	t.Logf("FIGURE commands: %q", slices.Sorted(maps.Keys(used)))
	for _, word := range strings.Fields(rights) {
		if command, is := strings.CutPrefix(word, "+"); is && !used[command] {
			t.Errorf("permission %s is not needed; used commands: %q", word, slices.Sorted(maps.Keys(used)))
		}
	}
}

// ClusterRights checks that a cluster needs one more permission, and those for the library.
func (o Opener) ClusterRights(t *testing.T, more ...string) {
	c := redistest.StartCluster(t, 3, 0)
	rights := strings.Fields(strings.Join(append(more, minimalRights(t), "+cluster|info"), " "))
	for _, node := range c.Nodes() {
		node.MustCmd(t, append([]string{"ACL", "SETUSER", "default"}, rights...)...)
	}
	t.Run("conformance", func(t *testing.T) {
		storetest.Run(t, func(t *testing.T) driver.Store {
			return o.Cluster(t, c.Addrs(), redisstore.Prefix("lock:"+t.Name()+":"))
		})
	})
}

// VoteRights checks the additional permissions for a quorum node.
func (o Opener) VoteRights(t *testing.T, more ...string) {
	const vote = "~dibs:node +info +lastsave"
	if text := spec(t); !strings.Contains(text, "`"+vote+"`") {
		t.Errorf("docs/spec.md does not list %s", vote)
	}
	server := redistest.Start(t)
	server.MustCmd(t, append([]string{"ACL", "SETUSER", "default"}, strings.Fields(strings.Join(append(more, minimalRights(t), vote), " "))...)...)
	t.Run("conformance", func(t *testing.T) {
		storetest.RunVotes(t, func(t *testing.T) driver.Voter {
			return o.Single(t, server.Addr(), redisstore.Prefix("lock:"+t.Name()+":"))
		})
	})
}

// usedCommands returns the commands executed by a server, including those in scripts.
func usedCommands(t *testing.T, server *redistest.Server) map[string]bool {
	t.Helper()
	text, _ := server.MustCmd(t, "INFO", "commandstats").(string)
	all := make(map[string]bool)
	for line := range strings.Lines(text) {
		name, _, ok := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":")
		if ok && strings.HasPrefix(line, "cmdstat_") {
			all[name] = true
			// Redis before 7 counts no subcommands.
			switch name {
			case "pubsub":
				all["pubsub|numsub"] = true
			case "client":
				all["client|tracking"] = true
			}
		}
	}
	return all
}

// minimalRights reads the minimal permissions in docs/spec.md, without user name and
// password.
func minimalRights(t *testing.T) string {
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
	text, err := os.ReadFile(filepath.Join("..", "docs", "spec.md"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
