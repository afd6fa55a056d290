package main

import "github.com/spf13/cobra"

func (a *app) runVerb() *cobra.Command { return &cobra.Command{Use: "run"} }
