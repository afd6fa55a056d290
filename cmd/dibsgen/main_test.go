package main

import (
	"bytes"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/dibslock/dibs/cmd/dibsgen/internal/load"
)

// modulePath is this module's path. Modules in tests also use it, so that packages in testdata can
// import each other.
const modulePath = "github.com/dibslock/dibs/cmd/dibsgen"

// newModule returns a module's directory in a workspace with dibs.
func newModule(t *testing.T, files map[string]string) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	write(t, dir, map[string]string{
		"go.mod":  "module " + modulePath + "\n\ngo 1.26.0\n",
		"go.work": "go 1.26.0\n\nuse (\n\t.\n\t" + root + "\n)\n",
	})
	write(t, dir, files)
	t.Setenv("GOWORK", filepath.Join(dir, "go.work"))
	t.Setenv("GOFLAGS", "")
	return dir
}

func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// goTool runs the go command.
func goTool(t *testing.T, dir string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("go %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// dibsgen runs the command, and returns its exit code and output.
func dibsgen(t *testing.T, dir string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, problems bytes.Buffer
	code = run(t.Context(), dir, args, &out, &problems)
	return code, out.String(), problems.String()
}

// want runs the command, and compares all its results.
func want(t *testing.T, dir string, code int, stdout, stderr string, args ...string) {
	t.Helper()
	haveCode, haveOut, haveErr := dibsgen(t, dir, args...)
	if haveCode != code || haveOut != stdout || haveErr != stderr {
		t.Errorf("dibsgen %s:\nwant %d\n%s%s\nhave %d\n%s%s", strings.Join(args, " "), code, stdout, stderr, haveCode, haveOut, haveErr)
	}
}

// goFiles returns the Go files below a directory by their relative paths.
func goFiles(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".go" {
			return err
		}
		name, err := filepath.Rel(dir, path)
		files[name] = read(t, path)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

const shop = `package shop

import "context"

type Shop interface {
	//dibs:lock "order:"+id
	Pay(ctx context.Context, id string) error
}
`

func TestFirstRun(t *testing.T) {
	dir := newModule(t, map[string]string{
		"shop/shop.go":  shop,
		"shop/new.go":   "package shop\n\nvar New = LockShop\n",
		"main.go":       "package main\n\nimport \"" + modulePath + "/shop\"\n\nvar _ = shop.New\n\nfunc main() { shop.LockShop(nil, nil) }\n",
		"plain/code.go": "package plain\n",
	})
	want(t, dir, exitStale, "shop/shop.dibs.go: missing\nrun dibsgen, or go generate, and commit the result\n", "", "-check", "./...")
	want(t, dir, 0, "shop/shop.dibs.go: written\n", "", "./...")
	want(t, dir, 0, "", "", "./...")
	want(t, dir, 0, "", "", "-check", "./...")
	want(t, filepath.Join(dir, "shop"), 0, "", "", "-check")
	goTool(t, dir, "vet", "./...")
}

// Whatever the generated file contains, the next run repairs it.
func TestBrokenGeneratedFile(t *testing.T) {
	dir := newModule(t, map[string]string{"shop/shop.go": shop})
	want(t, dir, 0, "shop/shop.dibs.go: written\n", "", "./shop")
	good := read(t, filepath.Join(dir, "shop", "shop.dibs.go"))
	broken := map[string]string{
		"empty":    "",
		"conflict": "<<<<<<< HEAD\n" + good + "=======\n" + good + ">>>>>>> branch\n",
		"other":    strings.Replace(good, "package shop", "package other", 1),
		"imports":  strings.Replace(good, `"context"`, `"no/such/package"`, 1),
		"removed":  strings.ReplaceAll(good, "Shop", "Removed"),
		"half":     good[:len(good)/2],
		"returns":  strings.ReplaceAll(good, "\n", "\r\n"),
	}
	stale, written := "", ""
	for _, name := range slices.Sorted(maps.Keys(broken)) {
		write(t, dir, map[string]string{
			name + "/shop.go": shop, name + "/shop.dibs.go": broken[name], name + "/use.go": "package shop\n\nvar New = LockShop\n",
		})
		stale += name + "/shop.dibs.go: stale\n"
		written += name + "/shop.dibs.go: written\n"
	}
	want(t, dir, exitStale, stale+"run dibsgen, or go generate, and commit the result\n", "", "-check", "./...")
	want(t, dir, 0, written, "", "./...")
	for name := range broken {
		if have := read(t, filepath.Join(dir, name, "shop.dibs.go")); have != good {
			t.Errorf("%s: have\n%s", name, have)
		}
	}
}

// An imported package's generated file can also be broken, and be its first file.
func TestBrokenGeneratedFileOfAnImport(t *testing.T) {
	dir := newModule(t, map[string]string{
		"base/base.go":   "package base\n\ntype T struct{}\n",
		"base/a.dibs.go": load.Header + "\n\npackage other\n",
		"middle/code.go": "package middle\n\nimport \"" + modulePath + "/base\"\n\ntype Getter interface{ Get() base.T }\n",
		"shop/shop.go": "package shop\n\nimport (\n\t\"context\"\n\n\t\"" + modulePath + "/middle\"\n)\n\ntype Shop interface {\n\tmiddle.Getter\n" +
			"\t//dibs:lock \"a\"\n\tPay(ctx context.Context) error\n}\n",
	})
	want(t, dir, 0, "shop/shop.dibs.go: written\n", "", "./shop")
	want(t, dir, 0, "base/a.dibs.go: removed: no directives\n", "", "./...")
	goTool(t, dir, "vet", "./...")
}

func TestUnchangedFileIsNotWritten(t *testing.T) {
	dir := newModule(t, map[string]string{"shop/shop.go": shop})
	want(t, dir, 0, "shop/shop.dibs.go: written\n", "", "./shop")
	before, err := os.Stat(filepath.Join(dir, "shop", "shop.dibs.go"))
	if err != nil {
		t.Fatal(err)
	}
	want(t, dir, 0, "", "", "./shop")
	after, err := os.Stat(filepath.Join(dir, "shop", "shop.dibs.go"))
	if err != nil {
		t.Fatal(err)
	}
	if !os.SameFile(before, after) || before.ModTime() != after.ModTime() {
		t.Error("the file was written again")
	}
}

// A changed file keeps its mode, and nothing else is left in the directory.
func TestChangedFileIsReplaced(t *testing.T) {
	dir := newModule(t, map[string]string{"shop/shop.go": shop, "shop/shop.dibs.go": ""})
	name := filepath.Join(dir, "shop", "shop.dibs.go")
	if err := os.Chmod(name, 0o640); err != nil {
		t.Fatal(err)
	}
	want(t, dir, 0, "shop/shop.dibs.go: written\n", "", "./shop")
	info, err := os.Stat(name)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o640 {
		t.Errorf("want mode 0640, have %v", info.Mode())
	}
	entries, err := os.ReadDir(filepath.Dir(name))
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != 2 {
		t.Errorf("want two files, have %v", entries)
	}
}

func TestLeftOver(t *testing.T) {
	dir := newModule(t, map[string]string{"shop/shop.go": shop, "shop/own.dibs.go": "package shop\n"})
	want(t, dir, 0, "shop/shop.dibs.go: written\n", "", "./...")
	write(t, dir, map[string]string{"shop/shop.go": strings.ReplaceAll(shop, "//dibs:", "// ")})
	want(t, dir, exitStale, "shop/shop.dibs.go: left over: no directives\nrun dibsgen, or go generate, and commit the result\n", "", "-check", "./...")
	want(t, dir, 0, "shop/shop.dibs.go: removed: no directives\n", "", "./...")
	want(t, dir, 0, "", "", "-check", "./...")
	if have := read(t, filepath.Join(dir, "shop", "own.dibs.go")); have != "package shop\n" {
		t.Errorf("a file without the header has changed: %q", have)
	}
}

// With a wrong directive nothing should be written, in any package, and nothing removed.
func TestNothingIsWrittenWithAProblem(t *testing.T) {
	dir := newModule(t, map[string]string{
		"a/shop.go": strings.ReplaceAll(shop, "package shop", "package a"),
		"b/shop.go": strings.ReplaceAll(shop, "dibs:lock", "dibs:lok"),
		"c/c.go":    "package c\n", "c/c.dibs.go": "",
	})
	problem := "b/shop.go:6:2: //dibs:lok: unknown directive; want lock, read, write, permits or once\n"
	want(t, dir, exitProblem, "", problem, "./...")
	want(t, dir, exitProblem, "", problem, "-check", "./...")
	for name := range goFiles(t, dir) {
		if strings.HasSuffix(name, "shop.dibs.go") {
			t.Errorf("%s was written", name)
		}
	}
	if have := read(t, filepath.Join(dir, "c", "c.dibs.go")); have != "" {
		t.Errorf("have %q", have)
	}
}

// While the source contains a syntax error, its directives may not be found. Then the generated
// file must not count as left over.
func TestSyntaxErrorRemovesNothing(t *testing.T) {
	for name, broken := range map[string]string{
		"before the directive": strings.Replace(shop, "import", strings.Repeat("func (\n", 20)+"import", 1),
		"package clause":       strings.Replace(shop, "package", "packag", 1),
	} {
		dir := newModule(t, map[string]string{"shop/shop.go": broken, "shop/shop.dibs.go": ""})
		code, out, problems := dibsgen(t, dir, "./...")
		if code != exitProblem || out != "" || !strings.HasPrefix(problems, "shop/shop.go:") {
			t.Errorf("%s: have %d, %s%s", name, code, out, problems)
		}
	}
}

// A file excluded by its build constraint cannot be checked. Its generated file is kept.
func TestExcludedFile(t *testing.T) {
	dir := newModule(t, map[string]string{
		"shop/shop_plan9.go": shop, "shop/tagged.go": "//go:build special\n\n" + strings.ReplaceAll(shop, "Shop", "Tagged"), "shop/doc.go": "package shop\n",
	})
	const skipped = ": skipped: the build constraint excludes the file; run dibsgen with the GOOS, GOARCH or -tags of the file, too\n"
	plan9, tagged := "shop/shop_plan9.go:6:2"+skipped, "shop/tagged.go:8:2"+skipped
	want(t, dir, 0, "", plan9+tagged, "./...")
	want(t, dir, 0, "shop/tagged.dibs.go: written\n", plan9, "-tags", "special", "./...")
	want(t, dir, 0, "", plan9+tagged, "-check", "./...")
	goTool(t, dir, "vet", "-tags=special", "./...")
	if have := read(t, filepath.Join(dir, "shop", "tagged.dibs.go")); !strings.Contains(have, "\n//go:build special\n\npackage shop\n") {
		t.Errorf("want the build constraint, have:\n%s", have)
	}
	t.Setenv("GOOS", "plan9")
	want(t, dir, 0, "shop/shop_plan9.dibs.go: written\n", tagged, "./...")
}

func TestCommandLine(t *testing.T) {
	dir := newModule(t, map[string]string{"shop/shop.go": shop})
	want(t, dir, 0, help, "", "-h")
	want(t, dir, 0, help, "", "--help")
	want(t, dir, exitUsage, "", "dibsgen: flag provided but not defined: -chek; see dibsgen -h\n", "-chek")
	want(t, dir, exitProblem, "", "dibsgen: package ./none: stat "+filepath.Join(dir, "none")+": directory not found\n", "./none")
	for line := range strings.Lines(help) {
		if len(line) > 81 {
			t.Errorf("the help has a line of more than 80 columns: %s", line)
		}
	}
}

// For a module without dibs, the message says how to get it.
func TestWithoutDibs(t *testing.T) {
	dir := newModule(t, map[string]string{"shop/shop.go": shop, "go.work": "go 1.26.0\n\nuse .\n"})
	t.Setenv("GOPROXY", "off")
	code, out, problems := dibsgen(t, dir, "./shop")
	if code != exitProblem || out != "" || !strings.HasPrefix(problems, "shop/shop.go:5:6: generated code needs package github.com/dibslock/dibs: ") ||
		!strings.HasSuffix(problems, "; run: go get github.com/dibslock/dibs\n") {
		t.Errorf("have %d\n%s%s", code, out, problems)
	}
}
