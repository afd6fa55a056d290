package main

import (
	"runtime"
	"runtime/debug"

	"github.com/dibslock/dibs/dashboard/view"
	"github.com/spf13/cobra"
)

func versionCmd(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version of dibs",
		Example: `  dibs version
  dibs version --json | jq -r .revision`,
		Args: argCount(0, 0),
		RunE: func(*cobra.Command, []string) error {
			v := versionOf(debug.ReadBuildInfo())
			if a.con.json {
				return a.con.printJSON(v)
			}
			return a.con.print(v.String() + "\n")
		},
	}
}

// A version is the output from dibs version.
type version struct {
	Schema   int    `json:"schema"`
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Time     string `json:"time,omitempty"` // the revision's commit time
	Dirty    bool   `json:"dirty"`          // built with uncommitted changes
	Go       string `json:"go"`
	OS       string `json:"os"`
	Arch     string `json:"arch"`
}

// versionOf reads the binary's build information. A build outside a repository has neither revision
// nor time.
func versionOf(info *debug.BuildInfo, ok bool) version {
	v := version{Schema: view.Schema, Version: "unknown", Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH}
	if !ok {
		return v
	}
	if info.Main.Version != "" {
		v.Version = info.Main.Version
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Revision = s.Value
		case "vcs.time":
			v.Time = s.Value
		case "vcs.modified":
			v.Dirty = s.Value == "true"
		}
	}
	return v
}

func (v version) String() string {
	s := "dibs " + v.Version
	if v.Revision != "" {
		s += " (" + v.Revision[:min(12, len(v.Revision))]
		if v.Dirty {
			s += ", dirty"
		}
		s += ")"
	}
	return s + " " + v.Go + " " + v.OS + "/" + v.Arch
}
