// Package golangci makes dibsvet's checks a module plugin for golangci-lint, with the name dibsvet.
// docs/dibsvet.md shows how to build and configure it.
package golangci

import (
	"fmt"
	"slices"

	"github.com/golangci/plugin-module-register/register"
	"golang.org/x/tools/go/analysis"

	"github.com/dibslock/dibs/cmd/dibsvet/checks"
)

// golangci-lint requires that a plugin registers itself when it is imported.
func init() { register.Plugin("dibsvet", New) }

// Settings contains the linter's settings in .golangci.yml.
type Settings struct {
	NoFence bool     `json:"nofence"` // also run the check nofence
	Disable []string `json:"disable"` // names of disabled checks
}

// New returns the plugin for settings, decoded from YAML by golangci-lint. It returns an error for
// a setting or a check that does not exist.
func New(settings any) (register.LinterPlugin, error) {
	s, err := register.DecodeSettings[Settings](settings)
	if err != nil {
		return nil, fmt.Errorf("settings of dibsvet: %w", err)
	}
	all := checks.All(func() bool { return s.NoFence })
	for _, name := range s.Disable {
		if !slices.ContainsFunc(all, func(a *analysis.Analyzer) bool { return a.Name == name }) {
			return nil, fmt.Errorf("settings of dibsvet: disable: no check %q", name)
		}
	}
	enabled := slices.DeleteFunc(all, func(a *analysis.Analyzer) bool { return slices.Contains(s.Disable, a.Name) })
	return plugin{enabled}, nil
}

type plugin struct{ analyzers []*analysis.Analyzer }

// BuildAnalyzers implements register.LinterPlugin.
func (p plugin) BuildAnalyzers() ([]*analysis.Analyzer, error) { return p.analyzers, nil }

// GetLoadMode implements register.LinterPlugin.
func (plugin) GetLoadMode() string { return register.LoadModeTypesInfo }
