package redistest

import (
	"context"
	"fmt"
	"strconv"
)

// StartClusterServer is StartServer for a single-node cluster, which serves every slot. Tests can
// check the rules about keys and slots with a single process.
func StartClusterServer(dir string, args ...string) (*Server, error) {
	return start(&Server{dir: dir, args: args, cluster: true, afterStart: clusterReady})
}

// clusterReady assigns all slots once; a restarted node still has them.
func clusterReady(ctx context.Context, c *Conn) error {
	info, err := text(ctx, c, "CLUSTER", "INFO")
	if err != nil {
		return err
	}
	if field(info, "cluster_slots_assigned") == "0" {
		if _, err := text(ctx, c, addSlots(0, slots-1)...); err != nil {
			return err
		}
	}
	if state := field(info, "cluster_state"); state != "ok" {
		return fmt.Errorf("cluster_state:%s", state)
	}
	return nil
}

// addSlots returns a command to assign slots. ADDSLOTSRANGE would need Redis 7.
func addSlots(first, last int) []string {
	command := []string{"CLUSTER", "ADDSLOTS"}
	for slot := first; slot <= last; slot++ {
		command = append(command, strconv.Itoa(slot))
	}
	return command
}
