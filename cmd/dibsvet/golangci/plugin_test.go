package golangci_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/golangci/plugin-module-register/register"
	"golang.org/x/tools/go/analysis"

	"github.com/dibslock/dibs/cmd/dibsvet/checks"
	"github.com/dibslock/dibs/cmd/dibsvet/golangci"
)

func TestPlugin(t *testing.T) {
	for _, test := range []struct {
		name     string
		settings any
		without  []string
	}{
		{"no settings", nil, nil},
		{"nofence", map[string]any{"nofence": true}, nil},
		{"disable", map[string]any{"disable": []any{"isbusy", "badname"}}, []string{"isbusy", "badname"}},
	} {
		plugin, err := golangci.New(test.settings)
		if err != nil {
			t.Fatalf("%s: %v", test.name, err)
		}
		analyzers, err := plugin.BuildAnalyzers()
		if err != nil {
			t.Fatalf("%s: %v", test.name, err)
		}
		has := names(analyzers)
		want := slices.DeleteFunc(names(checks.All(nil)), func(name string) bool { return slices.Contains(test.without, name) })
		if !slices.Equal(has, want) {
			t.Errorf("%s: checks %s, want %s", test.name, has, want)
		}
		if mode := plugin.GetLoadMode(); mode != register.LoadModeTypesInfo {
			t.Errorf("%s: load mode %s, want %s: the checks need types", test.name, mode, register.LoadModeTypesInfo)
		}
	}
}

func names(analyzers []*analysis.Analyzer) (names []string) {
	for _, a := range analyzers {
		names = append(names, a.Name)
	}
	return names
}

func TestBadSettings(t *testing.T) {
	for settings, want := range map[string]struct {
		value any
		text  string
	}{
		"a setting that does not exist": {map[string]any{"nofences": true}, `unknown field "nofences"`},
		"a check that does not exist":   {map[string]any{"disable": []any{"no"}}, `no check "no"`},
		"a value of another type":       {map[string]any{"nofence": "yes"}, "bool"},
	} {
		if _, err := golangci.New(want.value); err == nil || !strings.Contains(err.Error(), want.text) {
			t.Errorf("%s: %v, want an error with %q", settings, err, want.text)
		}
	}
}

func TestRegistered(t *testing.T) {
	if _, err := register.GetPlugin("dibsvet"); err != nil {
		t.Error(err)
	}
}
