package redigostore_test

import "testing"

func TestQuorumMinority(t *testing.T) { drills.QuorumMinority(t) }

func TestQuorumRestart(t *testing.T) { drills.QuorumRestart(t) }

func TestQuorumSplit(t *testing.T) { drills.QuorumSplit(t) }
