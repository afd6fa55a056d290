//go:build noserve

package main

import "github.com/spf13/cobra"

func pageCmds(*app) []*cobra.Command { return nil }
