package dibs_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"log/slog"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/memstore"
)

// texts returns a value as logs and messages can show it.
func texts(t *testing.T, value any) (all []string) {
	t.Helper()
	for _, verb := range []string{"%s", "%v", "%+v", "%#v", "%q", "%x"} {
		all = append(all, fmt.Sprintf(verb, value))
	}
	asJSON, err := json.Marshal(value)
	wantErr(t, err)
	all = append(all, string(asJSON))
	var out bytes.Buffer
	slog.New(slog.NewTextHandler(&out, nil)).Info("m", "value", value)
	slog.New(slog.NewJSONHandler(&out, nil)).Info("m", "value", value)
	return append(all, out.String())
}

func TestTokenShowsItsShortForm(t *testing.T) {
	const whole = "web-7:211:AAAABBBBCCCCDDDD:m-aaaabbbbccccddddeeee:payroll"
	for in, want := range map[dibs.Token]string{whole: "web-7:211:payroll", "request-4711": `"reques"…`, "": ""} {
		if have := in.String(); have != want {
			t.Errorf("String of %q: %s, want %s", string(in), have, want)
		}
	}
	for _, in := range []dibs.Token{whole, "request-4711-secret"} {
		all := texts(t, in)
		for _, verb := range []string{"%d", "%t", "%08.3f"} {
			all = append(all, fmt.Sprintf(verb, in), fmt.Sprintf(verb, dibs.NewHandle("n", string(in))), fmt.Sprintf(verb, dibs.OwnerToken(string(in))))
		}
		for _, text := range all {
			if strings.Contains(text, string(in)) || strings.Contains(text, fmt.Sprintf("%x", string(in))) {
				t.Errorf("%s shows all of the token", text)
			}
		}
	}
	if have, want := fmt.Sprintf("%#v", dibs.Token(whole)), `dibs.Token("web-7:211:payroll")`; have != want {
		t.Errorf("%%#v: %s, want %s", have, want)
	}
	var line bytes.Buffer
	slog.New(slog.NewTextHandler(&line, nil)).Info("held", "by", dibs.Token(whole))
	if !strings.Contains(line.String(), "by=web-7:211:payroll\n") {
		t.Errorf("line %s, want the short form", &line)
	}
}

// Whatever the package gives to a caller or a hook may end in a log.
func TestNoValueShowsAToken(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		var values []any
		var mu sync.Mutex
		add := func(value any) {
			mu.Lock()
			defer mu.Unlock()
			values = append(values, value)
		}
		c := open(t, s, dibs.TTL(3*time.Second), dibs.Observe(dibs.Hooks{
			AcquireStart: func(ctx context.Context, e dibs.AcquireStart) context.Context { add(e); return ctx },
			Queued:       func(_ context.Context, e dibs.Queued) { add(e) },
			AcquireEnd:   func(_ context.Context, e dibs.AcquireEnd) { add(e) },
			Lost:         func(_ context.Context, e dibs.Lost) { add(e) },
			Released:     func(_ context.Context, e dibs.Released) { add(e) },
			Renewed:      func(_ context.Context, e dibs.Renewed) { add(e) },
		}))
		held := lock(t, c, "n")
		lost := lock(t, c, "lost", dibs.MaxHold(time.Second))
		waiting := queue(func() (*dibs.Lease, error) { return c.Mutex("n").Lock(t.Context(), dibs.Wait(2*time.Second)) })
		time.Sleep(time.Second + time.Millisecond)

		state, err := c.Inspect(t.Context(), "n")
		wantErr(t, err)
		add(state)
		leader, err := c.Election("n").Leader(t.Context())
		wantErr(t, err)
		add(leader)
		settings, err := c.Mutex("m").CallSettings(t.Context(), dibs.OwnerToken("a-secret-of-the-application"))
		wantErr(t, err)
		add(settings)
		<-waiting.done
		var busy *dibs.BusyError
		if !errors.As(waiting.err, &busy) || busy.Holder != held.Token() {
			t.Fatalf("%v: want it busy, with the holder", waiting.err)
		}
		add(busy)
		add(*busy)
		var loss *dibs.LostError
		if !errors.As(lost.Err(), &loss) || loss.Token != lost.Token() {
			t.Fatalf("%v: want it lost, with the token", lost.Err())
		}
		add(loss)
		add(*loss)
		add(held)
		wantErr(t, held.Unlock())
		synctest.Wait()

		secrets := []string{"a-secret-of-the-application"}
		for _, l := range []*dibs.Lease{held, lost} {
			secrets = append(secrets, string(l.Token()), strings.Split(string(l.Token()), ":")[3])
		}
		mu.Lock()
		defer mu.Unlock()
		seen := make(map[reflect.Type]bool)
		for _, value := range values {
			seen[reflect.TypeOf(value)] = true
			for _, text := range texts(t, value) {
				for _, secret := range secrets {
					if strings.Contains(text, secret) {
						t.Errorf("%T shows the token %s: %s", value, secret, text)
					}
				}
			}
		}
		if len(seen) < 12 {
			t.Errorf("only %d types were seen", len(seen))
		}
	})
}

// A plain string field for a token would be printed whole.
func TestTokenFieldsAreTokens(t *testing.T) {
	found := 0
	inspect := func(n ast.Node) bool {
		of, ok := n.(*ast.TypeSpec)
		if !ok || !of.Name.IsExported() {
			return true
		}
		fields, ok := of.Type.(*ast.StructType)
		if !ok {
			return true
		}
		for _, field := range fields.Fields.List {
			kind, _ := field.Type.(*ast.Ident)
			for _, name := range field.Names {
				if name.Name != "Token" && name.Name != "Holder" {
					continue
				}
				if found++; kind == nil || kind.Name != "Token" {
					t.Errorf("%s.%s is no Token", of.Name, name)
				}
			}
		}
		return true
	}
	for _, file := range packageFiles(t) {
		ast.Inspect(file, inspect)
	}
	if found < 8 {
		t.Errorf("found %d fields with a token", found)
	}
}
