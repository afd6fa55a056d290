package loadsim

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// outVariable is a directory for the graph of a 3 s stop. It receives after.csv. If it contains
// before.csv, an earlier after.csv, the graph shows both.
const outVariable = "DIBS_LOAD_OUT"

var stopped = Plan{
	Leases: Equal(20, 5000), TTL: 15 * second, Acquire: 5 * second, Step: second / 2, KeepLost: true,
	Events: []Event{Stop(30*second, 3*second)},
}

func TestWriteGraph(t *testing.T) {
	dir := os.Getenv(outVariable)
	if dir == "" {
		t.Skipf("%s is not set", outVariable)
	}
	var text strings.Builder
	if err := measure(t, stopped).WriteCSV(&text); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "after.csv"), []byte(text.String()), 0o666); err != nil {
		t.Fatal(err)
	}
	var curves []Curve
	for _, c := range []Curve{{Name: "before", Color: "#d55e00"}, {Name: "after", Color: "#0072b2"}} {
		file, err := os.Open(filepath.Join(dir, c.Name+".csv"))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		if c.Points, err = ReadCSV(file); err != nil {
			t.Fatal(err)
		}
		curves = append(curves, c)
	}
	graph := Graph("20 clients with 5,000 leases each (TTL 15 s), Redis stopped for 3 s", curves, stopped.Events)
	if err := os.WriteFile(filepath.Join(dir, "stopped-server.svg"), []byte(graph), 0o666); err != nil {
		t.Fatal(err)
	}
}

func TestGraphShowsTheCSV(t *testing.T) {
	p := Plan{Leases: Equal(2, 10), Duration: 3 * second, Step: second, Events: []Event{Stop(second, second)}}
	r := Run(t, p)
	var text strings.Builder
	if err := r.WriteCSV(&text); err != nil {
		t.Fatal(err)
	}
	points, err := ReadCSV(strings.NewReader(text.String()))
	if err != nil || len(points) != 3 || points[2].Held != 20 || points[2].At != 3*second {
		t.Errorf("have %v, %v, want 3 points, the last one with 20 leases", points, err)
	}
	graph := Graph("title", []Curve{{"one", "#000", points}}, p.Events)
	decoder := xml.NewDecoder(strings.NewReader(graph))
	for {
		if _, err := decoder.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("%v in %s", err, graph)
		}
	}
	for _, want := range []string{"title", "one", "leases held", "100 %", "0 s"} {
		if !strings.Contains(graph, want) {
			t.Errorf("the graph lacks %q: %s", want, graph)
		}
	}
}
