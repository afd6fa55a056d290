package redistest

import (
	"context"
	"fmt"
)

// StartClusterServer is StartServer for a cluster of one: every slot is on it,
// so that the rules about keys and slots can be tested on one process.
func StartClusterServer(dir string, args ...string) (*Server, error) {
	return start(&Server{dir: dir, args: args, cluster: true, settle: clusterReady})
}

// clusterReady assigns all the slots once; a restarted node remembers them.
func clusterReady(ctx context.Context, c *Conn) error {
	info, err := text(ctx, c, "CLUSTER", "INFO")
	if err != nil {
		return err
	}
	if field(info, "cluster_slots_assigned") == "0" {
		if _, err := text(ctx, c, "CLUSTER", "ADDSLOTSRANGE", "0", "16383"); err != nil {
			return err
		}
	}
	if state := field(info, "cluster_state"); state != "ok" {
		return fmt.Errorf("cluster_state:%s", state)
	}
	return nil
}
