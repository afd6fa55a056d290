package checks_test

import (
	"go/ast"
	"go/types"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/checker"
	"golang.org/x/tools/go/packages"

	"github.com/dibslock/dibs/cmd/dibsvet/checks"
)

// publicModules contains modules that use locks or contexts in many ways, but not dibs.
var publicModules = []string{
	"github.com/go-redsync/redsync/v4@v4.18.1",
	"github.com/bsm/redislock@v0.9.4",
	"github.com/redis/go-redis/v9@v9.23.0",
	"github.com/jackc/pgx/v5@v5.12.0",
	"github.com/go-co-op/gocron/v2@v2.21.2",
	"github.com/hibiken/asynq@v0.26.0",
	"github.com/caddyserver/certmagic@v0.25.6",
	"github.com/redis/rueidis@v1.0.79",
	"golang.org/x/sync@v0.25.0",
	"google.golang.org/grpc@v1.85.0",
}

// Programs without dibs should have no findings. Here the checks inspect them anyway, and a
// callback with a context counts as a function under a lock. So outerctx meets contexts, loggers,
// clean-up and goroutines as people write them. The other checks need dibs types: this shows only
// that they do not fail.
func TestPublicModules(t *testing.T) {
	if os.Getenv("DIBS_LONG") != "1" {
		t.Skip("downloads modules; set DIBS_LONG=1")
	}
	dir := t.TempDir()
	env := append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod")
	write(t, filepath.Join(dir, "go.mod"), "module example\n\ngo 1.26.0\n")
	get := exec.CommandContext(t.Context(), "go", append([]string{"get"}, publicModules...)...)
	get.Dir, get.Env = dir, env
	if out, err := get.CombinedOutput(); err != nil {
		t.Skipf("the modules cannot be downloaded: %v\n%s", err, out)
	}
	for _, module := range publicModules {
		name, _, _ := strings.Cut(module, "@")
		pkgs, err := packages.Load(&packages.Config{Mode: packages.LoadSyntax, Dir: dir, Env: env}, name+"/...")
		if err != nil {
			t.Fatal(err)
		}
		// A module's examples can need others that it does not require.
		pkgs = slices.DeleteFunc(pkgs, func(pkg *packages.Package) bool { return pkg.IllTyped })
		if len(pkgs) == 0 {
			t.Errorf("%s has no package that compiles", module)
			continue
		}
		inspectModule(t, name, pkgs)
	}
}

func inspectModule(t *testing.T, name string, pkgs []*packages.Package) {
	t.Helper()
	lines, callbacks := 0, 0
	for _, pkg := range pkgs {
		for _, file := range pkg.Syntax {
			lines += pkg.Fset.File(file.Package).LineCount()
			callbacks += callbacksIn(file)
		}
	}
	for _, all := range [][]*analysis.Analyzer{checks.All(func() bool { return true }), checks.OfCallbacks()} {
		start := time.Now()
		graph, err := checker.Analyze(all, pkgs, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %d packages, %d lines, %d callbacks with a context: %v", name, len(pkgs), lines, callbacks, time.Since(start).Round(time.Millisecond))
		for _, action := range graph.Roots {
			if action.Err != nil {
				t.Errorf("%v: %v", action, action.Err)
			}
			for _, d := range action.Diagnostics {
				t.Errorf("%s: %s: %s", action.Package.Fset.Position(d.Pos), action.Analyzer.Name, d.Message)
			}
		}
	}
}

// callbacksIn counts the arguments that are function literals with a context.
func callbacksIn(file *ast.File) (n int) {
	ast.Inspect(file, func(node ast.Node) bool {
		call, ok := node.(*ast.CallExpr)
		if !ok {
			return true
		}
		for _, argument := range call.Args {
			literal, ok := argument.(*ast.FuncLit)
			if ok && len(literal.Type.Params.List) > 0 && types.ExprString(literal.Type.Params.List[0].Type) == "context.Context" {
				n++
			}
		}
		return true
	})
	return n
}
