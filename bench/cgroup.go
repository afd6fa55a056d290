package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// A cpuGroup is a cgroup that limits its processes' CPU time.
type cpuGroup struct {
	dir  string
	pids []int
}

const (
	cpuGroups   = "/sys/fs/cgroup/cpu"
	cgroupTimes = 100 * time.Millisecond // a quota's period
)

// canLimit returns an error if this process can make no cpuGroup.
func canLimit() error {
	g, err := newCPUGroup(1)
	if err != nil {
		return fmt.Errorf("%w: %w", errNoCgroup, err)
	}
	g.close()
	return nil
}

// newCPUGroup makes a group whose processes share a fraction of a processor.
func newCPUGroup(share float64, pids ...int) (*cpuGroup, error) {
	dir, err := os.MkdirTemp(cpuGroups, "dibs-bench-")
	if err != nil {
		return nil, err
	}
	g := &cpuGroup{dir: dir, pids: pids}
	quota := max(time.Duration(share*float64(cgroupTimes)), time.Millisecond) // the kernel accepts no smaller quota
	err = errors.Join(g.write("cpu.cfs_period_us", int(cgroupTimes.Microseconds())), g.write("cpu.cfs_quota_us", int(quota.Microseconds())))
	for _, pid := range pids {
		err = errors.Join(err, g.write("cgroup.procs", pid))
	}
	if err != nil {
		g.close()
		return nil, err
	}
	return g, nil
}

func (g *cpuGroup) write(name string, value int) error {
	return os.WriteFile(filepath.Join(g.dir, name), []byte(strconv.Itoa(value)), 0o600)
}

// lift ends the limit.
func (g *cpuGroup) lift() error { return g.write("cpu.cfs_quota_us", -1) }

// close removes the group. Its processes belong to no group then.
func (g *cpuGroup) close() {
	for _, pid := range g.pids {
		_ = os.WriteFile(filepath.Join(cpuGroups, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0o600) // it may have ended
	}
	_ = os.Remove(g.dir) // empty now
}

// limit limits the servers, which are Redis servers.
func (b *fixture) limit(share float64) (*cpuGroup, error) {
	var pids []int
	for _, n := range b.nodes {
		pids = append(pids, n.server.(redisServer).Pid())
	}
	return newCPUGroup(share, pids...)
}
