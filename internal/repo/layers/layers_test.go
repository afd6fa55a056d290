package layers_test

import (
	"fmt"
	"go/ast"
	"go/token"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
)

// rule is a sentence about the repository, and the check that enforces it.
type rule struct {
	name   string
	reason string
	check  func(*tree) []string // returns the violations, each as "file:line: text"
	bad    []sample             // each violates the rule once
	good   []sample             // these comply with it
}

var rules = []rule{
	{
		name:   "imports go down only",
		reason: "each layer can be read, tested and deleted alone, and importing the root adds no dependency",
		check:  upwardImports,
		bad: []sample{
			{"a.go", `package dibs; import _ "github.com/redis/go-redis/v9"`},
			{"a.go", `package dibs; import _ "github.com/dibslock/dibs/memstore"`},
			{"a_test.go", `package dibs; import _ "github.com/stretchr/testify"`},
			{"a_test.go", `package dibs; import _ "github.com/dibslock/dibs/bench"`},
			{"memstore/a.go", `package memstore; import _ "github.com/dibslock/dibs/redisstore"`},
			{"quorum/a.go", `package quorum; import _ "github.com/dibslock/dibs/internal/test/history"`},
			{"storetest/a.go", `package storetest; import _ "github.com/dibslock/dibs/memstore"`},
			{"redisstore/a.go", `package redisstore; import _ "github.com/dibslock/dibs/goredisstore"`},
			{"goredisstore/a.go", `package goredisstore; import _ "github.com/dibslock/dibs/rueidisstore"`},
			{"contrib/dibshttp/a.go", `package dibshttp; import _ "github.com/dibslock/dibs/memstore"`},
			{"contrib/dibscron/a.go", `package dibscron; import _ "github.com/dibslock/dibs/contrib/dibshttp"`},
			{"dashboard/a.go", `package dashboard; import _ "github.com/dibslock/dibs/redisstore"`},
			{"internal/test/history/a.go", `package history; import _ "github.com/dibslock/dibs/redisstore"`},
			{"internal/test/history/a.go", `package history; import _ "github.com/anishathalye/porcupine"`},
			{"internal/test/linear/a.go", `package linear; import _ "github.com/dibslock/dibs/memstore"`},
			{"driver/a.go", `package driver; import _ "github.com/dibslock/dibs"`},
			{"driver/glob/a.go", `package glob; import _ "github.com/dibslock/dibs/kvstore"`},
			{"memstore/a.go", `package memstore; import _ "github.com/dibslock/dibs"`},
			{"redisstore/a.go", `package redisstore; import _ "github.com/dibslock/dibs"`},
			{"quorum/a.go", `package quorum; import _ "github.com/dibslock/dibs"`},
			{"internal/locktable/a.go", `package locktable; import _ "github.com/dibslock/dibs/memstore"`},
			{"localstore/a.go", `package localstore; import _ "github.com/dibslock/dibs/memstore"`},
			{"localstore/a.go", `package localstore; import _ "github.com/dibslock/dibs/internal/locktable"`},
			{"kvstore/a.go", `package kvstore; import _ "github.com/dibslock/dibs/memstore"`},
			{"kvstore/a.go", `package kvstore; import _ "github.com/dibslock/dibs/kvstore/buckettest"`},
			{"kvstore/buckettest/a.go", `package buckettest; import _ "github.com/dibslock/dibs/storetest"`},
			{"quorum/a.go", `package quorum; import _ "github.com/dibslock/dibs/internal/locktable"`},
			{"internal/clock/a.go", `package clock; import _ "github.com/dibslock/dibs/internal/work"`},
			{"internal/work/a.go", `package work; import _ "github.com/dibslock/dibs"`},
			{"internal/acquire/a.go", `package acquire; import _ "github.com/dibslock/dibs"`},
			{"internal/acquire/a.go", `package acquire; import _ "github.com/dibslock/dibs/internal/lease"`},
			{"internal/answer/a.go", `package answer; import _ "github.com/dibslock/dibs/internal/acquire"`},
			{"internal/lease/a.go", `package lease; import _ "github.com/dibslock/dibs/internal/renew"`},
			{"internal/renew/a.go", `package renew; import _ "github.com/dibslock/dibs/internal/work"`},
		},
		good: []sample{
			{"a.go", `package dibs; import _ "crypto/rand"`},
			{"a.go", `package dibs; import _ "github.com/dibslock/dibs/driver"`},
			{"a_test.go", `package dibs_test; import _ "github.com/dibslock/dibs/memstore"`},
			{"memstore/a.go", `package memstore; import ("github.com/dibslock/dibs/driver"; "github.com/dibslock/dibs/internal/locktable")`},
			{"localstore/a.go", `package localstore; import ("github.com/dibslock/dibs/kvstore"; "modernc.org/sqlite")`},
			{"storetest/a.go", `package storetest; import _ "github.com/dibslock/dibs/internal/test/history"`},
			{"driver/guard/a.go", `package guard; import _ "github.com/dibslock/dibs/driver"`},
			{"kvstore/a.go", `package kvstore; import _ "github.com/dibslock/dibs/internal/locktable"`},
			{"kvstore/a_test.go", `package kvstore_test; import _ "github.com/dibslock/dibs/kvstore/buckettest"`},
			{"kvstore/buckettest/a.go", `package buckettest; import _ "github.com/dibslock/dibs/kvstore"`},
			{"internal/work/a.go", `package work; import _ "github.com/dibslock/dibs/internal/clock"`},
			{"internal/renew/a.go", `package renew; import _ "github.com/dibslock/dibs/internal/lease"`},
			{"memstore/a_test.go", `package memstore; import _ "github.com/dibslock/dibs/storetest"`},
			{"redisstore/a.go", `package redisstore; import _ "github.com/dibslock/dibs/internal/load"`},
			{"goredisstore/a.go", `package goredisstore; import ("github.com/dibslock/dibs/redisstore"; "github.com/redis/go-redis/v9")`},
			{"internal/test/redistest/a.go", `package redistest; import _ "github.com/dibslock/dibs/redisstore"`},
			{"internal/test/linear/a.go", `package linear; import ("github.com/anishathalye/porcupine"; "github.com/dibslock/dibs")`},
			{"cmd/dibs/a.go", `package main; import _ "github.com/dibslock/dibs/quorum"`},
			{"contrib/dibscron/a.go", `package dibscron; import ("github.com/dibslock/dibs"; "github.com/robfig/cron/v3")`},
			{"contrib/dibscron/a_test.go", `package dibscron; import _ "github.com/dibslock/dibs/memstore"`},
		},
	},
	{
		name:   "other modules import no internal package of the root module, except in tests",
		reason: "modules of different versions must compile together; a tool, too, is in the module graph of its user",
		check:  internalOfRoot,
		bad: []sample{
			{"goredisstore/a.go", `package goredisstore; import _ "github.com/dibslock/dibs/internal/load"`},
			{"pgstore/internal/doctor/a.go", `package doctor; import _ "github.com/dibslock/dibs/internal/load"`},
			{"contrib/dibscron/a.go", `package dibscron; import _ "github.com/dibslock/dibs/internal/load"`},
			{"cmd/dibs/a.go", `package main; import _ "github.com/dibslock/dibs/internal/load"`},
		},
		good: []sample{
			{"redisstore/a.go", `package redisstore; import _ "github.com/dibslock/dibs/internal/load"`},
			{"goredisstore/a_test.go", `package goredisstore; import _ "github.com/dibslock/dibs/internal/test/redistest"`},
			{"cmd/dibs/a.go", `package main; import _ "github.com/dibslock/dibs/cmd/dibs/internal/supervise"`},
			{"bench/a.go", `package main; import _ "github.com/dibslock/dibs/internal/test/redistest"`},
		},
	},
	{
		name:   "libraries read no environment and no flags, and do not log",
		reason: "programs pass settings to a library, and hooks report events to the program",
		check:  environmentInLibraries,
		bad: []sample{
			{"a.go", `package dibs; import "log/slog"; func f() { slog.Info("x") }`},
			{"a.go", `package dibs; import _ "flag"`},
			{"a.go", `package dibs; import "os"; var x = os.Getenv("X")`},
			{"a.go", `package dibs; import env "os"; var look = env.LookupEnv`},
			{"a.go", `package dibs; import "fmt"; func f() { fmt.Println() }`},
			{"memstore/a.go", `package memstore; import ("fmt"; "os"); func f() { fmt.Fprint(os.Stderr) }`},
			{"goredisstore/a.go", `package goredisstore; import _ "log"`},
			{"contrib/dibsotel/a.go", `package dibsotel; import "log/slog"; var l *slog.Logger`},
			{"contrib/dibsslog/a.go", `package dibsslog; import _ "log"`},
		},
		good: []sample{
			{"a.go", `package dibs; import ("fmt"; "os"); func f() { fmt.Sprint(os.Getpid()) }`},
			{"a.go", `package dibs; type T struct{}; func (T) Getenv() {}; func f() { var os T; os.Getenv() }`},
			{"example_test.go", `package dibs_test; import "fmt"; func Example() { fmt.Println() }`},
			{"bench/main.go", `package main; import ("flag"; "fmt"); func main() { flag.Parse(); fmt.Println() }`},
			{"internal/test/redistest/a.go", `package redistest; import "os"; var require = os.Getenv("DIBS_REQUIRE_REDIS")`},
			{"internal/test/childtest/a.go", `package childtest; import "os"; var binary = os.Args[0]`},
			{"contrib/dibsslog/a.go", `package dibsslog; import "log/slog"; var l *slog.Logger`},
			{"a.go", `package dibs; import "log/slog"; type T string; func (T) LogValue() slog.Value { return slog.StringValue("short") }`},
		},
	},
	{
		name:   "the root requires nothing, and no module replaces anything",
		reason: "users inherit every dependency, and `go install module@version` rejects a module with replace directives",
		check:  moduleFiles,
		bad: []sample{
			{"go.mod", "module m\nrequire example.org/x v1.0.0\n"},
			{"go.mod", "module m\n\nrequire (\n\texample.org/x v1.0.0 // indirect\n)\n"},
			{"go.mod", "module m\ntool example.org/x\n"},
			{"goredisstore/go.mod", "module m\nreplace github.com/dibslock/dibs => ../..\n"},
			{"bench/go.mod", "module m\nreplace (\n\texample.org/x => ./x\n)\n"},
		},
		good: []sample{
			{"go.mod", "module m // require nothing\n\n// replace nothing\ngo 1.26\n"},
			{"bench/go.mod", "module m\nrequire example.org/x v1.0.0\n"},
			{"go.work", "use .\nreplace github.com/dibslock/dibs v0.0.0 => .\n"}, // go.work does not affect a module's users
		},
	},
	{
		name:   "every package and every exported name has a comment",
		reason: "users read the documentation of a name; a method needs none only if an exported interface documents it",
		check:  undocumented,
		bad: []sample{
			{"a.go", "package dibs"},
			{"a.go", "//go:build linux\n\npackage dibs"},
			{"cmd/dibs/main.go", "package main"},
			{"dashboard/view/a.go", "package view"},
			{"cmd/dibs/internal/monitor/a.go", "// Package monitor.\npackage monitor\nfunc F() {}"},
			{"internal/test/history/a.go", "package history"},
			{"a.go", "// Package dibs.\npackage dibs\nfunc F() {}"},
			{"a.go", "// Package dibs.\npackage dibs\n//go:noinline\nfunc F() {}"},
			{"a.go", "// Package dibs.\npackage dibs\ntype T struct{}"},
			{"a.go", "// Package dibs.\npackage dibs\n// Both.\ntype (\n// T is.\nT struct{}\nU struct{}\n)"},
			{"a.go", "// Package dibs.\npackage dibs\nconst C = 1"},
			{"a.go", "// Package dibs.\npackage dibs\nvar v, V = 1, 2"},
			{"a.go", "// Package dibs.\npackage dibs\n// T is.\ntype T[P any] struct{}\nfunc (*T[P]) M() {}"},
		},
		good: []sample{
			{"a.go", "// Package dibs.\npackage dibs\n// F is.\nfunc F() {}\nfunc f() {}"},
			{"a.go", "// Package dibs.\npackage dibs\n// The bounds.\nconst (\nA = 1\nB = 2\n)"},
			{"a.go", "// Package dibs.\npackage dibs\nconst (\nA = 1 // the first\nb = 2\n)"},
			{"a.go", "// Package dibs.\npackage dibs\ntype t struct{}\nfunc (t) M() {}"},
			{"a.go", "// Package dibs.\npackage dibs\n// E is.\ntype E struct{}\nfunc (E) Error() string { return \"\" }"},
			{"a.go", "// Package dibs.\npackage dibs\n// I is.\ntype I interface{ M() }\n// T is.\ntype T struct{}\nfunc (T) M() {}"},
			{"a_test.go", "package dibs_test\nfunc F() {}"},
			{"internal/test/history/a.go", "// Package history.\npackage history\nfunc F() {}"},
			{"cmd/dibs/a.go", "// Command dibs.\npackage main\nfunc F() {}"},
		},
	},
	{
		name:   "only the main package of a command parses its command line",
		reason: "the work of a command can be tested, and used by another program, without its flags",
		check:  commandLines,
		bad: []sample{
			{"dashboard/view/a.go", `package view; import _ "github.com/spf13/cobra"`},
			{"dashboard/view/a_test.go", `package view; import _ "github.com/spf13/pflag"`},
			{"cmd/dibs/internal/monitor/a.go", `package monitor; import _ "flag"`},
			{"dashboard/watch/a.go", `package watch; import _ "github.com/spf13/cobra/doc"`},
			{"bench/a.go", `package main; import _ "github.com/spf13/cobra"`},
		},
		good: []sample{
			{"cmd/dibs/a.go", `package main; import ("github.com/spf13/cobra"; "github.com/spf13/pflag")`},
			{"bench/a.go", `package main; import _ "flag"`},
		},
	},
	{
		name:   "the packages of the command and of the dashboard have one concern each",
		reason: "what kills processes can be read without what formats tables, and pure functions need no server in a test",
		check:  oneConcernEach,
		bad: []sample{
			{"cmd/dibs/internal/supervise/a.go", `package supervise; import _ "github.com/dibslock/dibs/dashboard/view"`},
			{"cmd/dibs/internal/supervise/a.go", `package supervise; import _ "github.com/dibslock/dibs/dashboard/watch"`},
			{"cmd/dibs/internal/supervise/a.go", `package supervise; import _ "github.com/dibslock/dibs/redisstore"`},
			{"dashboard/view/a.go", `package view; import _ "os/exec"`},
			{"dashboard/view/a.go", `package view; import _ "net/url"`},
			{"dashboard/view/a.go", `package view; import _ "os"`},
			{"dashboard/view/a.go", `package view; import _ "golang.org/x/term"`},
			{"dashboard/watch/a.go", `package watch; import _ "os"`},
			{"dashboard/watch/a.go", `package watch; import _ "flag"`},
			{"cmd/dibs/internal/monitor/a.go", `package monitor; import _ "github.com/dibslock/dibs/dashboard/watch"`},
			{"cmd/dibs/internal/page/a.go", `package page; import _ "net/http"`},
		},
		good: []sample{
			{"cmd/dibs/internal/supervise/a.go", `package supervise; import ("os"; "syscall"; "github.com/dibslock/dibs"; "golang.org/x/sys/unix")`},
			{"dashboard/view/a.go", `package view; import ("encoding/json"; "github.com/dibslock/dibs/driver")`},
			{"dashboard/watch/a.go", `package watch; import ("sync"; "github.com/dibslock/dibs/dashboard/view")`},
			{"dashboard/watch/a_test.go", `package watch; import _ "github.com/dibslock/dibs/memstore"`},
			{"cmd/dibs/a.go", `package main; import _ "github.com/dibslock/dibs/cmd/dibs/internal/supervise"`},
		},
	},
	{
		name:   "Lua scripts are in .lua files",
		reason: "the scripts are the wire format: other languages, redis-cli --eval and readers of docs/spec.md use the same files",
		check:  luaInGo,
		bad: []sample{
			{"redisstore/a.go", "package redisstore; const s = `return redis.call('GET', KEYS[1])`"},
			{"redisstore/a_test.go", `package redisstore; const s = "redis.pcall('GET')"`},
			{"goredisstore/a.go", `package goredisstore; const s = "redis.call('GET')"`},
		},
		good: []sample{
			{"redisstore/a.go", "package redisstore // a redis.call costs a microsecond"},
			{"bench/peer.go", `package main; const s = "redis.call('GET')"`},
		},
	},
	{
		name:   "state machines have no clock, goroutine, mutex or I/O",
		reason: "a step that depends on its arguments only can be simulated, and repeated exactly",
		check:  impureCode,
		bad: []sample{
			{"internal/locktable/a.go", `package locktable; import _ "sync"`},
			{"internal/lease/a.go", `package lease; import _ "sync"`},
			{"internal/lease/a.go", `package lease; import "time"; var at = time.Now()`},
			{"internal/locktable/a.go", `package locktable; import _ "os"`},
			{"internal/locktable/a.go", `package locktable; import _ "crypto/rand"`},
			{"quorum/internal/core/a.go", `package core; import _ "net"`},
			{"quorum/internal/core/a.go", `package core; import "time"; var at = time.Now()`},
			{"quorum/internal/core/a.go", `package core; import "time"; func f() { time.AfterFunc(0, f) }`},
			{"quorum/internal/core/a.go", `package core; func f() { go f() }`},
			{"quorum/internal/core/a.go", `package core; import _ "github.com/dibslock/dibs/quorum"`},
		},
		good: []sample{
			{"quorum/internal/core/a.go", `package core; import "time"; func f(now time.Time) time.Time { return now.Add(time.Second) }`},
			{"quorum/internal/core/a_test.go", `package core; import "time"; var at = time.Now()`},
			{"internal/locktable/a.go", `package locktable; import _ "github.com/dibslock/dibs/driver"`},
			{"quorum/a.go", `package quorum; import _ "sync"`},
		},
	},
	{
		name:   "no init functions",
		reason: "importing a package must have no effect",
		check:  initFunctions,
		bad: []sample{
			{"a.go", "package dibs; func init() {}"},
			{"cmd/dibs/main.go", "package main; func init() {}"},
		},
		good: []sample{
			{"a.go", "package dibs; type t struct{}; func (t) init() {}"},
			{"a_test.go", "package dibs; func init() {}"},
			{"cmd/dibsvet/golangci/a.go", "package golangci; func init() {}"},
		},
	},
	{
		name:   "no absolute path of one machine",
		reason: "a path that exists on one machine only is broken on all others",
		check:  machinePaths,
		bad: []sample{ // split, so this file complies with the rule
			{"README.md", "see /" + "work/main/README.md"},
			{"Makefile", "X=/" + "root/go/bin"},
			{"testdata/a.json", `{"path": "/` + `home/somebody/x"}`},
			{"docs/a.md", "file:///" + "Users/somebody/x"},
		},
		good: []sample{
			{"README.md", "https://example.org/work/of/others, ~/work/here, ../root/x, /homework/"},
			{"logo.bin", "\x00 /" + "root/"},
		},
	},
}

// sample is a repository with a single file.
type sample struct{ path, text string }

func (s sample) load(t *testing.T) *tree {
	t.Helper()
	repo, err := load(fstest.MapFS{s.path: {Data: []byte(s.text)}})
	if err != nil {
		t.Fatalf("sample %s: %v\n%s", s.path, err, s.text)
	}
	return repo
}

func TestRepository(t *testing.T) {
	repo, err := load(os.DirFS("../../.."))
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(repo.files, func(f file) bool { return f.path == "go.mod" }) {
		t.Fatal("this is not the repository: no go.mod at its root")
	}
	for _, r := range rules {
		t.Run(r.name, func(t *testing.T) {
			if found := r.check(repo); len(found) > 0 {
				t.Errorf("%s\nThe rule: %s,\nbecause %s.", strings.Join(found, "\n"), r.name, r.reason)
			}
		})
	}
}

func TestRulesDetectViolations(t *testing.T) {
	for _, r := range rules {
		t.Run(r.name, func(t *testing.T) {
			if len(r.bad) == 0 || len(r.good) == 0 {
				t.Error("a rule needs samples that violate it and samples that comply with it")
			}
			for _, s := range r.bad {
				found := r.check(s.load(t))
				if len(found) != 1 || !strings.HasPrefix(found[0], s.path+":") {
					t.Errorf("%s violates the rule once, but the check found %q\n%s", s.path, found, s.text)
				}
			}
			for _, s := range r.good {
				if found := r.check(s.load(t)); len(found) > 0 {
					t.Errorf("%s complies with the rule, but the check found %q\n%s", s.path, found, s.text)
				}
			}
		})
	}
}

func upwardImports(t *tree) (found []string) {
	for f := range t.goFiles(true) {
		here := layerOf(f.dir())
		for _, spec := range f.syntax.Imports {
			name := imported(spec)
			dir, ours := inProject(name)
			there := layerOf(dir)
			switch {
			case here.program, inStdlib(name), ours && there.dir == here.dir:
			case !ours && !here.external:
				found = append(found, t.at(spec, "%s imports %s, but may import only the standard library and this project", here.dir, name))
			case !ours:
			case there.program:
				found = append(found, t.at(spec, "%s is a program, which only programs may import", name))
			case !f.test && !slices.Contains(here.imports, there.dir):
				found = append(found, t.at(spec, "%s imports %s, but may import only the standard library and %q", here.dir, name, here.imports))
			}
		}
	}
	return found
}

// internalOfRoot returns where another module imports the root module's internal packages. Nobody
// requires the benchmarks, the other libraries' tests, and the test rigs.
func internalOfRoot(t *tree) (found []string) {
	for f := range t.goFiles(false) {
		here := layerOf(f.dir())
		top, _, _ := strings.Cut(here.dir, "/")
		if !here.external || slices.Contains([]string{"bench", "interop", "internal"}, top) {
			continue
		}
		for _, spec := range f.syntax.Imports {
			if name := imported(spec); strings.HasPrefix(name, module+"/internal/") {
				found = append(found, t.at(spec, "%s imports %s of the root module", here.dir, name))
			}
		}
	}
	return found
}

// environment lists the names that use a program's environment, flags or standard streams. An empty
// list means the whole package.
var environment = map[string][]string{
	"flag": {},
	"log":  {},
	"log/slog": {
		"Debug", "DebugContext", "Default", "Error", "ErrorContext", "Info", "InfoContext", "Log", "LogAttrs", "Logger", "New", "SetDefault",
		"Warn", "WarnContext", "With",
	},
	"fmt":     {"Print", "Printf", "Println"},
	"os":      {"Args", "Environ", "ExpandEnv", "Getenv", "LookupEnv", "Stderr", "Stdin", "Stdout"},
	"syscall": {"Environ", "Getenv"},
}

func environmentInLibraries(t *tree) (found []string) {
	for f := range t.goFiles(false) {
		here := layerOf(f.dir())
		if here.program || slices.Contains([]string{"internal/test/redistest", "internal/test/pgtest", "internal/test/mysqltest", "internal/test/etcdtest", "internal/test/zktest", "internal/test/childtest"}, here.dir) {
			continue
		}
		names := map[string]string{} // these packages' local names in this file
		for _, spec := range f.syntax.Imports {
			pkg := imported(spec)
			members, ok := environment[pkg]
			switch {
			case !ok:
			case pkg == "log/slog" && here.dir == "contrib/dibsslog": // its purpose; the logger is the user's
			case len(members) == 0:
				found = append(found, t.at(spec, "imports %s", pkg))
			case spec.Name != nil:
				names[spec.Name.Name] = pkg
			default:
				names[path.Base(pkg)] = pkg
			}
		}
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			selector, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			// An identifier with an object is a variable in this file, not a package.
			if x, ok := selector.X.(*ast.Ident); ok && x.Obj == nil {
				if pkg := names[x.Name]; slices.Contains(environment[pkg], selector.Sel.Name) {
					found = append(found, t.at(selector, "uses %s.%s", pkg, selector.Sel.Name))
				}
			}
			return true
		})
	}
	return found
}

// directive matches the start of a directive not allowed in a go.mod, as a block or a line.
var directive = regexp.MustCompile(`^\s*(require|replace|tool)\b`)

func moduleFiles(t *tree) (found []string) {
	for _, f := range t.files {
		if path.Base(f.path) != "go.mod" {
			continue
		}
		for i, line := range strings.Split(string(f.text), "\n") {
			match := directive.FindStringSubmatch(line)
			if match != nil && (match[1] == "replace" || f.path == "go.mod") {
				found = append(found, fmt.Sprintf("%s:%d: has a %s directive", f.path, i+1, match[1]))
			}
		}
	}
	return found
}

func undocumented(t *tree) (found []string) {
	documented := documentedMethods(t)
	packages := map[string]*ast.File{} // by directory: the file with the package comment, or any file
	for f := range t.goFiles(false) {
		if packages[f.dir()] == nil || hasText(f.syntax.Doc) {
			packages[f.dir()] = f.syntax
		}
		if !exportsToOthers(f.dir()) {
			continue
		}
		for _, decl := range f.syntax.Decls {
			for _, id := range uncommented(decl, documented) {
				found = append(found, t.at(id, "%s has no comment", id.Name))
			}
		}
	}
	for _, syntax := range packages {
		if !hasText(syntax.Doc) {
			found = append(found, t.at(syntax, "package %s has no package comment", syntax.Name.Name))
		}
	}
	slices.Sort(found)
	return found
}

// exportsToOthers reports whether a package's exported names need comments: a library's names, and
// names in a command's own packages.
func exportsToOthers(dir string) bool {
	parts := strings.Split(dir, "/")
	if slices.Contains(parts, "internal") {
		return parts[0] == "cmd"
	}
	return layerOf(dir).library
}

// commandLine contains the packages that parse a command line with subcommands.
var commandLine = regexp.MustCompile(`^github\.com/spf13/(cobra|pflag)(/|$)`)

func commandLines(t *tree) (found []string) {
	for f := range t.goFiles(true) {
		parts := strings.Split(f.dir(), "/")
		command := parts[0] == "cmd"
		if command && len(parts) == 2 {
			continue
		}
		for _, spec := range f.syntax.Imports {
			if name := imported(spec); commandLine.MatchString(name) || command && name == "flag" {
				found = append(found, t.at(spec, "%s imports %s", f.dir(), name))
			}
		}
	}
	return found
}

// concerns contains the packages with a single concern each: in cmd/dibs/internal, and those shared
// by the command and the dashboard. Each lists the allowed imports besides the standard library,
// and the forbidden imports in it. A package ends with a slash if this includes the packages below.
var concerns = map[string]struct{ may, mayNot []string }{
	"cmd/dibs/internal/supervise": {may: []string{module, "golang.org/x/sys/", "golang.org/x/term"}, mayNot: []string{"net/"}},
	"cmd/dibs/internal/monitor":   {may: []string{module, module + "/driver", module + "/dashboard/view"}, mayNot: []string{"os/", "syscall"}},
	"dashboard/view":              {may: []string{module + "/checkup", module + "/driver", module + "/driver/ownertoken", module + "/dashboard/waitgraph"}, mayNot: []string{"net/", "os/", "syscall", "context", "flag"}},
	"dashboard/watch":             {may: []string{module + "/driver", module + "/dashboard/view"}, mayNot: []string{"net/", "os/", "syscall", "flag"}},
}

func oneConcernEach(t *tree) (found []string) {
	includes := func(list []string, name string) bool {
		return slices.ContainsFunc(list, func(p string) bool {
			return p == name || strings.HasSuffix(p, "/") && strings.HasPrefix(name+"/", p)
		})
	}
	for f := range t.goFiles(false) {
		rule, known := concerns[f.dir()]
		if !known && strings.HasPrefix(f.dir(), "cmd/dibs/internal/") {
			found = append(found, t.at(f.syntax, "concerns lacks %s", f.dir()))
		}
		if !known {
			continue
		}
		for _, spec := range f.syntax.Imports {
			name := imported(spec)
			if !inStdlib(name) && !includes(rule.may, name) || includes(rule.mayNot, name) {
				found = append(found, t.at(spec, "%s imports %s", f.dir(), name))
			}
		}
	}
	return found
}

// hasText reports whether a comment contains text other than directives.
func hasText(comment *ast.CommentGroup) bool {
	return strings.TrimSpace(comment.Text()) != ""
}

// documentedMethods returns the methods documented elsewhere: by conventions in the standard
// library, or by an exported interface in this project.
func documentedMethods(t *tree) map[string]bool {
	documented := map[string]bool{"Error": true, "Unwrap": true, "Is": true, "As": true, "String": true}
	for f := range t.goFiles(false) {
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok || !spec.Name.IsExported() {
				return true
			}
			if contract, ok := spec.Type.(*ast.InterfaceType); ok {
				for _, method := range contract.Methods.List {
					for _, id := range method.Names {
						documented[id.Name] = true
					}
				}
			}
			return true
		})
	}
	return documented
}

// uncommented returns a declaration's exported names without a comment. A comment on a group of
// constants or variables covers them all.
func uncommented(decl ast.Decl, documented map[string]bool) (names []*ast.Ident) {
	add := func(id *ast.Ident, comments ...*ast.CommentGroup) {
		if id.IsExported() && !slices.ContainsFunc(comments, hasText) {
			names = append(names, id)
		}
	}
	switch decl := decl.(type) {
	case *ast.FuncDecl:
		if decl.Recv == nil || ast.IsExported(receiver(decl)) && !documented[decl.Name.Name] {
			add(decl.Name, decl.Doc)
		}
	case *ast.GenDecl:
		for _, spec := range decl.Specs {
			switch spec := spec.(type) {
			case *ast.TypeSpec:
				if decl.Lparen.IsValid() {
					add(spec.Name, spec.Doc, spec.Comment)
				} else {
					add(spec.Name, decl.Doc)
				}
			case *ast.ValueSpec:
				for _, id := range spec.Names {
					add(id, spec.Doc, spec.Comment, decl.Doc)
				}
			}
		}
	}
	return names
}

// receiver returns the name of a method's type.
func receiver(method *ast.FuncDecl) string {
	for expr := method.Recv.List[0].Type; ; {
		switch e := expr.(type) {
		case *ast.StarExpr:
			expr = e.X
		case *ast.ParenExpr:
			expr = e.X
		case *ast.IndexExpr:
			expr = e.X
		case *ast.IndexListExpr:
			expr = e.X
		case *ast.Ident:
			return e.Name
		default:
			return ""
		}
	}
}

func luaInGo(t *tree) (found []string) {
	for f := range t.goFiles(true) {
		if !strings.HasSuffix(layerOf(f.dir()).dir, "store") {
			continue
		}
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			literal, ok := n.(*ast.BasicLit)
			if !ok || literal.Kind != token.STRING {
				return true
			}
			text, err := strconv.Unquote(literal.Value)
			if err == nil && (strings.Contains(text, "redis.call") || strings.Contains(text, "redis.pcall")) {
				found = append(found, t.at(literal, "contains a script: move it to a .lua file and embed that file"))
			}
			return true
		})
	}
	return found
}

func initFunctions(t *tree) (found []string) {
	for f := range t.goFiles(false) {
		switch f.dir() {
		case "cmd/dibsvet/golangci": // golangci-lint requires that a plugin registers itself
			continue
		case "cmd/dibs/internal/supervise": // a watchdog process needs no other package
			continue
		}
		for _, decl := range f.syntax.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && f.Recv == nil && f.Name.Name == "init" {
				found = append(found, t.at(f, "has an init function"))
			}
		}
	}
	return found
}

// machinePath matches the start of an absolute path specific to a machine. A relative path, or a
// path in a URL, has other characters before its first slash.
var machinePath = regexp.MustCompile(`(?:^|[^\w.~*$})-])/(?:work|root|home/\w+|Users/\w+)/`)

func machinePaths(t *tree) (found []string) {
	for _, f := range t.files {
		for i, line := range strings.Split(string(f.text), "\n") {
			if match := machinePath.FindString(line); match != "" {
				found = append(found, fmt.Sprintf("%s:%d: has the path %q", f.path, i+1, strings.TrimSpace(match)))
			}
		}
	}
	return found
}
