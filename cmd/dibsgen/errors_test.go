package main

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

// wrong is a package rejected by dibsgen.
type wrong struct {
	name  string
	files string            // the methods of an interface Shop; or a whole file with a package clause
	other map[string]string // more files
	want  []string          // the messages, without the directory
}

// inInterface begins a file with methods. They begin on line 6.
const inInterface = "package p\n\nimport \"context\"\n\ntype Shop interface {\n"

var wrongPackages = []wrong{
	{"unknownkind", "\t//dibs:lok \"a\"\n\tPay(ctx context.Context) error\n", nil,
		[]string{"a.go:6:2: //dibs:lok: unknown directive; want lock, read, write, permits or once"}},
	{"space", "\t// dibs:lock \"a\"\n\tPay(ctx context.Context) error\n", nil,
		[]string{"a.go:6:2: not a directive: write it as //dibs:lock, without spaces before the kind and in lower case"}},
	{"uppercase", "\t//Dibs:Lock \"a\"\n\tPay(ctx context.Context) error\n", nil,
		[]string{"a.go:6:2: not a directive: write it as //dibs:lock, without spaces before the kind and in lower case"}},
	{"block", "\t/*dibs:lock \"a\"*/\n\tPay(ctx context.Context) error\n", nil,
		[]string{"a.go:6:2: not a directive: write it as //dibs:lock, without spaces before the kind and in lower case"}},
	{"nocontext", "\t//dibs:lock id\n\tPay(id string) error\n\t//dibs:lock \"a\"\n\tNone() error\n\t//dibs:lock \"a\"\n\tLate(id int, ctx context.Context) error\n\tPing()\n", nil,
		[]string{
			"a.go:7:2: method Pay has a directive, so its first parameter must be a context.Context: it ends when the lock is lost",
			"a.go:9:2: method None has a directive, so its first parameter must be a context.Context: it ends when the lock is lost",
			"a.go:11:2: method Late has a directive, so its first parameter must be a context.Context: it ends when the lock is lost",
		}},
	{"variadiccontext", "\t//dibs:lock \"a\"\n\tPay(ctx ...context.Context) error\n", nil,
		[]string{"a.go:7:2: method Pay has a directive, so its first parameter must be a context.Context: it ends when the lock is lost"}},
	{"owncontext", "package p\n\nimport \"context\"\n\ntype Context interface{ context.Context }\n\ntype Shop interface {\n\t//dibs:lock \"a\"\n\tPay(ctx Context) error\n}\n", nil,
		[]string{"a.go:9:2: method Pay has a directive, so its first parameter must be a context.Context: it ends when the lock is lost"}},
	{"noerror", "\t//dibs:lock \"a\"\n\tPay(ctx context.Context) int\n\t//dibs:lock \"a\"\n\tNone(ctx context.Context)\n\t//dibs:lock \"a\"\n\tFirst(ctx context.Context) (error, int)\n", nil,
		[]string{
			"a.go:7:2: method Pay has a directive, so its last result must be an error: it reports a lock that is busy or lost",
			"a.go:9:2: method None has a directive, so its last result must be an error: it reports a lock that is busy or lost",
			"a.go:11:2: method First has a directive, so its last result must be an error: it reports a lock that is busy or lost",
		}},
	{"undefined", "\t//dibs:lock \"order:\"+oid\n\tPay(ctx context.Context, id string) error\n", nil,
		[]string{"a.go:6:23: //dibs:lock: undefined: oid; a name may use named parameters of its method, names of the package, and imports of its file"}},
	{"unnamed", "\t//dibs:lock \"order:\"+id\n\tPay(context.Context, string) error\n\t//dibs:lock \"order:\"+_\n\tBlank(_ context.Context, _ string) error\n", nil,
		[]string{
			"a.go:6:23: //dibs:lock: undefined: id; a name may use named parameters of its method, names of the package, and imports of its file",
			"a.go:8:23: //dibs:lock: cannot use _ as value",
		}},
	{"result", "\t//dibs:lock id\n\tPay(ctx context.Context) (id string, n int, err error)\n", nil,
		[]string{"a.go:6:14: //dibs:lock: undefined: id; a name may use named parameters of its method, names of the package, and imports of its file"}},
	{"field", "package p\n\nimport \"context\"\n\ntype Order struct{ ID string }\n\ntype Shop interface {\n\t//dibs:lock \"order:\" + o.Id\n\tPay(ctx context.Context, o Order) error\n}\n", nil,
		[]string{"a.go:8:27: //dibs:lock: o.Id undefined (type Order has no field or method Id, but does have field ID)"}},
	{"notstring", "\t//dibs:lock id\n\tPay(ctx context.Context, id int) error\n\t//dibs:lock id...\n\tAll(ctx context.Context, id string) error\n\t//dibs:permits \"a\" n\n\tUse(ctx context.Context, n string) error\n", nil,
		[]string{
			"a.go:6:14: //dibs:lock: cannot use id (variable of type int) as string value in argument to l.locks.Mutex",
			"a.go:8:14: //dibs:lock: cannot use id (variable of type string) as []string value in argument to l.locks.All",
			"a.go:10:21: //dibs:permits: cannot use n (variable of type string) as int value in argument to l.locks.Semaphore",
		}},
	{"syntax", "\t//dibs:lock \"a\"+\n\tA(ctx context.Context) error\n\t//dibs:lock f(\n\tB(ctx context.Context) error\n\t//dibs:lock\n\tC(ctx context.Context) error\n", nil,
		[]string{
			"a.go:6:18: expected operand, found 'EOF' in the name \"a\"+",
			"a.go:8:16: missing ) in the names",
			"a.go:10:13: the name is missing; want a Go expression of type string",
		}},
	{"options", "\t//dibs:lock \"a\" wiat=3s\n\tA(ctx context.Context) error\n\t//dibs:lock \"a\" wait=3\n\tB(ctx context.Context) error\n\t//dibs:lock \"a\" ttl=1ms\n\tC(ctx context.Context) error\n\t//dibs:once \"a\" 1h wait=1s\n\tD(ctx context.Context) error\n\t//dibs:lock \"a\" wait=1s attempts=3/1s\n\tE(ctx context.Context) error\n", nil,
		[]string{
			`a.go:6:18: option "wiat": unknown; want ttl, wait, timeout, minhold, maxhold, attempts, label, norenew, reentrant or retryfailed; the parts of a name are joined with +, several names with a comma`,
			`a.go:8:18: option "wait": want a duration such as "20s"`,
			`a.go:10:18: TTL 1ms: not within 10ms to 24h0m0s`,
			`a.go:12:21: Wait given to Do of the periodic job "…": it does not wait; give it to Lock or Do of another lock`,
			`a.go:14:18: Wait and Attempts: give Wait or Attempts, not both`,
		}},
	{"several", "\t//dibs:lock \"a\"\n\t//dibs:read \"b\"\n\tPay(ctx context.Context) error\n", nil,
		[]string{"a.go:7:2: a second directive on Pay; a method has one: //dibs:lock holds several names together"}},
	{"embeddedline", "\t//dibs:lock \"a\"\n\tPayer\n}\n\ntype Payer interface {\n\tPay(ctx context.Context) error\n", nil,
		[]string{"a.go:6:2: a directive on an embedded interface; it belongs to a method: put it above the methods of that interface, or declare the method here"}},
	{"union", "\t//dibs:lock \"a\"\n\t~int | ~string\n", nil,
		[]string{"a.go:6:2: " + withoutEffect}},
	{"constraint", "\t~int\n\t//dibs:lock \"a\"\n\tPay(ctx context.Context) error\n", nil,
		[]string{"a.go:5:6: interface Shop is a constraint, and no value has its type; remove the type terms, or the directives"}},
	{"elsewhere", `package p

import "context"

//dibs:lock "package"

//dibs:lock "type"
type Shop interface {
	//dibs:lock "detached"

	Pay(ctx context.Context) error //dibs:lock "behind"
	// dibs:lock "end"
}

//dibs:lock "struct"
type T struct {
	//dibs:lock "field"
	field interface {
		//dibs:lock "in a field"
		Pay(ctx context.Context) error
	}
}

//dibs:lock "function"
func (T) Pay(ctx context.Context) error {
	//dibs:lock "body"
	type local interface {
		//dibs:lock "local"
		Pay(ctx context.Context) error
	}
	return nil
}
`, nil, func() (want []string) {
		for _, at := range []string{"5:1", "7:1", "9:2", "11:33"} {
			want = append(want, "a.go:"+at+": "+withoutEffect)
		}
		want = append(want, "a.go:12:2: not a directive: write it as //dibs:lock, without spaces before the kind and in lower case")
		for _, at := range []string{"15:1", "17:2", "19:3", "24:1", "26:2", "28:3"} {
			want = append(want, "a.go:"+at+": "+withoutEffect)
		}
		return want
	}()},
	{"testfile", "\tPay(ctx context.Context) error\n", map[string]string{
		"a_test.go": "package p\n\nimport \"context\"\n\ntype Fake interface {\n\t//dibs:lock \"a\"\n\tPay(ctx context.Context) error\n}\n",
		"b_test.go": "package p_test\n\n//dibs:lok\n",
	}, []string{
		"a_test.go:6:2: a directive in a test file; move the interface to a file that is not a test",
		"b_test.go:3:1: a directive in a test file; move the interface to a file that is not a test",
	}},
	{"collision", "\t//dibs:lock \"a\"\n\tPay(ctx context.Context) error\n}\n\nfunc LockShop() {\n", nil,
		[]string{"a.go:10:6: LockShop is the name of a function that dibsgen generates for interface Shop; rename one of them"}},
	{"ownfile", "\t//dibs:lock \"a\"\n\tPay(ctx context.Context) error\n", map[string]string{"a.dibs.go": "package p\n"},
		[]string{"a.go:1:1: the file would be a.dibs.go, which exists and has no header of dibsgen; rename that file"}},
	{"unknowntype", "\t//dibs:lock \"a\"\n\tPay(ctx context.Context, o Order) (Receipt, error)\n", nil,
		[]string{"a.go:7:29: undefined: Order", "a.go:7:37: undefined: Receipt"}},
	{"unknownpackage", "package p\n\nimport (\n\t\"context\"\n\t\"no.where/api\"\n)\n\ntype Shop interface {\n\t//dibs:lock \"a\"\n\tPay(ctx context.Context, o api.Order) error\n}\n", nil,
		[]string{"a.go:10:2: the types of method Pay are unknown: a.go:5:2: could not import no.where/api"}},
	{"sourcesyntax", "\t//dibs:lock \"a\"\n\tPay(ctx context.Context error\n", nil,
		[]string{"a.go:7:26: missing ',' in parameter list", "a.go:8:1: expected ')', found '}'"}},
	{"twopackages", "\t//dibs:lock \"a\"\n\tPay(ctx context.Context) error\n", map[string]string{"b.go": "package q\n"},
		[]string{"b.go:1:9: package q; the other files of the directory are of package p"}},
	{"cgo", "package p\n\n// int one();\nimport \"C\"\n\nimport \"context\"\n\ntype Shop interface {\n\t//dibs:lock \"a\"\n\tPay(ctx context.Context) error\n}\n", nil,
		[]string{"a.go:8:6: interface Shop is in a file that imports C; move it to a file without cgo"}},
	{"cgoname", "package p\n\n// int one();\nimport \"C\"\n\nimport \"context\"\n\ntype Shop interface {\n\t//dibs:lock C.GoString(id)\n\tPay(ctx context.Context, id *byte) error\n}\n", nil,
		[]string{
			"a.go:8:6: interface Shop is in a file that imports C; move it to a file without cgo",
			"a.go:9:2: //dibs:lock: the name uses package C; call a Go function instead",
		}},
	{"hiddenerror", "\t//dibs:lock \"a\"\n\tPay(ctx context.Context, error string) (int, error)\n", nil,
		[]string{"a.go:7:27: parameter error of method Pay hides the type error, which the generated code needs; rename it"}},
	{"constant", "\t//dibs:lock \"\"\n\tA(ctx context.Context) error\n\t//dibs:lock \"a\", \"\"\n\tB(ctx context.Context) error\n\t//dibs:permits \"a\" 0\n\tC(ctx context.Context) error\n\t//dibs:once \"\\xff\" 1h\n\tD(ctx context.Context) error\n", nil,
		[]string{
			"a.go:6:14: empty name",
			"a.go:8:19: empty name",
			"a.go:10:21: 0 permits: not within 1 to 2147483647",
			`a.go:12:14: name "\xff": not UTF-8`,
		}},
	{"foreignunexported", "package p\n\nimport (\n\t\"context\"\n\t\"reflect\"\n)\n\ntype Shop interface {\n\treflect.Type\n\t//dibs:lock \"a\"\n\tPay(ctx context.Context) error\n}\n", nil,
		[]string{
			"a.go:8:6: method common is unexported in package reflect, so that only that package can implement Shop",
			"a.go:8:6: method uncommon is unexported in package reflect, so that only that package can implement Shop",
		}},
	{"foreigndirective", "package p\n\nimport (\n\t\"context\"\n\n\t\"" + modulePath + "/valid\"\n)\n\ntype Shop interface {\n\tvalid.Shop\n\t//dibs:lock \"a\"\n\tRefund(ctx context.Context) error\n}\n", nil,
		[]string{"a.go:9:6: method Pay of package " + modulePath + "/valid has a directive, which would have no effect here; declare the method in Shop with a directive of its own"}},
	{"internaltype", "package p\n\nimport (\n\t\"context\"\n\n\t\"" + modulePath + "/valid\"\n)\n\ntype Shop interface {\n\tvalid.Inner\n\t//dibs:lock \"a\"\n\tRefund(ctx context.Context) error\n}\n", nil,
		[]string{"a.go:9:6: the methods of Shop use a type of package " + modulePath + "/valid/internal/inner, which this package cannot import"}},
	{"unexportedtype", "package p\n\nimport (\n\t\"context\"\n\n\t\"" + modulePath + "/valid\"\n)\n\ntype Shop interface {\n\tvalid.Hidden\n\t//dibs:lock \"a\"\n\tRefund(ctx context.Context) error\n}\n", nil,
		[]string{"a.go:9:6: name hidden not exported by package valid"}},
	{"samenames", "package p\n\nimport (\n\t\"context\"\n\t\"crypto/rand\"\n)\n\nvar text = rand.Text()\n\ntype Shop interface {\n\tPayer\n\t//dibs:lock rand.Text()\n\tRefund(ctx context.Context) error\n}\n", map[string]string{
		"b.go": "package p\n\nimport (\n\t\"context\"\n\t\"math/rand\"\n)\n\nvar number = rand.Int()\n\ntype Payer interface {\n\t//dibs:lock string(rune(rand.Int()))\n\tPay(ctx context.Context) error\n}\n",
	}, []string{"b.go:11:2: //dibs:lock: rand is package math/rand here, and another package in another directive of the generated file; import one of them under another name"}},
	// Nothing substitutes Rows' K in []K, which is Store's T.
	{"embeddedscope", "package p\n\nimport \"context\"\n\ntype Store[T any] interface {\n\t//dibs:lock name[T](id)\n\tPut(ctx context.Context, id string) error\n}\n\nfunc name[T any](string) string { return \"\" }\n\ntype Rows[K any] Store[[]K]\n\ntype Shop interface{ Rows[int] }\n\ntype Twice interface {\n\tStore[int]\n\tStore[string]\n}\n\ntype Named[K any] Store[K]\n\ntype Defined interface {\n\tNamed[int]\n\tNamed[string]\n}\n\ntype Both interface {\n\tStore[int]\n\tNamed[string]\n}\n\ntype Unknown interface {\n\tRows[int]\n\tRows[int]\n}\n", nil,
		[]string{
			"a.go:14:6: the directive of method Put uses type parameter T, whose type in Shop is not known; declare the method in Shop",
			"a.go:16:6: the directive of method Put uses type parameter T, and Twice embeds the method with two different types for it; declare the method in Twice",
			"a.go:23:6: the directive of method Put uses type parameter T, and Defined embeds the method with two different types for it; declare the method in Defined",
			"a.go:28:6: the directive of method Put uses type parameter T, and Both embeds the method with two different types for it; declare the method in Both",
			"a.go:33:6: the directive of method Put uses type parameter T, whose type in Unknown is not known; declare the method in Unknown",
		}},
	{"hiddenbound", "package p\n\nimport \"context\"\n\ntype row struct{}\n\ntype Store[T any] interface {\n\t//dibs:lock name[T](row)\n\tPut(ctx context.Context, row string) error\n}\n\nfunc name[T any](string) string { return \"\" }\n\ntype Rows interface{ Store[row] }\n", nil,
		[]string{"a.go:14:6: the directive of method Put uses type parameter T and parameter row, which hides type row; rename parameter row"}},
	{"typeparameter", "package p\n\nimport \"context\"\n\ntype Store[T, error any] interface {\n\t//dibs:lock T\n\tPut(ctx context.Context, T string) failure\n\t//dibs:lock \"a\"\n\tGet(ctx context.Context) failure\n}\n\ntype failure = error\n\ntype Rows[Rows any] interface {\n\t//dibs:lock \"a\"\n\tPut(ctx context.Context, row Rows) error\n}\n", nil,
		[]string{
			"a.go:5:15: type parameter error of Store hides the type of that name, which the generated code needs; rename it",
			"a.go:7:27: parameter T of method Put has the name of a type parameter of Store, and the directive uses it; rename one of them",
			"a.go:14:11: type parameter Rows of Rows hides the type of that name, which the generated code needs; rename it",
		}},
	{"allatonce", `package p

import "context"

type Store[T any] interface {
	//dibs:lock name[T](idd)
	Put(ctx context.Context, id T) error
}

func name[T any](T) string { return "" }

type Shop interface {
	Store[int]
	//dibs:lok "a"
	A(id string)
	//dibs:lock "a" ttl=1ms wait=3
	B(ctx context.Context) int
	//dibs:lock idd
	C(ctx context.Context, id string) error
	//dibs:lock ""
	D(ctx context.Context) error
	E(o Order) error
	//dibs:permits "e" 0
	F(ctx context.Context) error
}

func LockShop() {}

type Other interface {
	//dibs:lock o.Id
	A(ctx context.Context, o struct{ ID string }) error
	//dibs:lock "a"
	B(o string) error
}

//dibs:lock "function"
func f() {}
`, map[string]string{
		"b.go":      "package p\n\nimport \"context\"\n\ntype Third interface {\n\t//dibs:lock id+\"\" ttl=1ms\n\tA(ctx context.Context, id int) error\n\t//dibs:lock id+\"\"\n\tB(ctx context.Context, id int) error\n}\n",
		"b.dibs.go": "package p\n\nvar number int = \"not a number\"\n",
	}, []string{
		"a.go:6:22: //dibs:lock: undefined: idd; a name may use",
		"a.go:14:2: //dibs:lok: unknown directive; want lock, read, write, permits or once",
		"a.go:15:2: method A has a directive, so its first parameter must be a context.Context",
		"a.go:15:2: method A has a directive, so its last result must be an error",
		"a.go:16:18: TTL 1ms: not within 10ms to 24h0m0s",
		"a.go:16:26: option \"wait\": want a duration such as \"20s\"",
		"a.go:17:2: method B has a directive, so its last result must be an error",
		"a.go:18:14: //dibs:lock: undefined: idd; a name may use",
		"a.go:20:14: empty name",
		"a.go:22:6: undefined: Order",
		"a.go:23:21: 0 permits: not within 1 to 2147483647",
		"a.go:27:6: LockShop is the name of a function that dibsgen generates for interface Shop; rename one of them",
		"a.go:30:16: //dibs:lock: o.Id undefined",
		"a.go:33:2: method B has a directive, so its first parameter must be a context.Context",
		"a.go:36:1: " + withoutEffect,
		"b.go:1:1: the file would be b.dibs.go, which exists and has no header of dibsgen; rename that file",
		"b.go:6:20: TTL 1ms: not within 10ms to 24h0m0s",
		"b.go:8:14: //dibs:lock: invalid operation: id + \"\" (mismatched types int and untyped string)",
	}},
}

const withoutEffect = "a directive without effect; it belongs directly above a method of an interface type that the package declares, outside of functions"

// Each package must be rejected with exactly these messages, and all at once.
func TestWrongDirectives(t *testing.T) {
	files := map[string]string{
		"valid/valid.go": "package valid\n\nimport (\n\t\"context\"\n\n\t\"" + modulePath + "/valid/internal/inner\"\n)\n\ntype Shop interface {\n\t//dibs:lock \"a\"\n\tPay(ctx context.Context) error\n}\n\n" +
			"type Inner interface{ Get() inner.T }\n\ntype hidden struct{}\n\ntype Hidden interface{ Get() hidden }\n",
		"valid/internal/inner/inner.go": "package inner\n\ntype T struct{}\n",
	}
	for _, w := range wrongPackages {
		text := w.files
		if !strings.HasPrefix(text, "package ") {
			text = inInterface + text + "}\n"
		}
		files[w.name+"/a.go"] = text
		for name, text := range w.other {
			files[w.name+"/"+name] = text
		}
	}
	dir := newModule(t, files)
	t.Setenv("CGO_ENABLED", "1") // the go command lists files with cgo; nothing compiles them
	t.Setenv("GOPROXY", "off")
	code, out, problems := dibsgen(t, dir, "./...")
	if code != exitProblem || out != "" {
		t.Errorf("want %d, have %d, %s", exitProblem, code, out)
	}
	have := map[string][]string{}
	for line := range strings.Lines(strings.ReplaceAll(problems, dir+"/", "")) {
		name, _, _ := strings.Cut(line, "/")
		have[name] = append(have[name], strings.TrimSuffix(line, "\n"))
	}
	for _, w := range wrongPackages {
		compareMessages(t, w, have[w.name])
		delete(have, w.name)
	}
	for _, name := range slices.Sorted(maps.Keys(have)) {
		t.Errorf("not expected: %q", have[name])
	}
}

// compareMessages compares the messages with the wanted beginnings.
func compareMessages(t *testing.T, w wrong, have []string) {
	t.Helper()
	same := len(have) == len(w.want)
	for i := 0; same && i < len(have); i++ {
		same = strings.HasPrefix(strings.TrimPrefix(strings.ReplaceAll(have[i], " "+w.name+"/", " "), w.name+"/"), w.want[i])
	}
	if !same {
		t.Errorf("%s:\nwant\n%s\nhave\n%s", w.name, strings.Join(w.want, "\n"), strings.Join(have, "\n"))
	}
}
