package dibsprom_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/contrib/dibsprom"
	"github.com/dibslock/dibs/internal/test/childtest"
	"github.com/dibslock/dibs/internal/test/spawn"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

func TestMain(m *testing.M) {
	childtest.Main(m, map[string]childtest.Role{"service": service})
}

// patience bounds the time until Prometheus must react, on a busy machine.
const patience = time.Minute

// program returns a Prometheus program's path. Without it the test is skipped; with
// DIBS_REQUIRE_PROMETHEUS=1 it fails.
func program(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		if os.Getenv("DIBS_REQUIRE_PROMETHEUS") == "1" {
			t.Fatal(err)
		}
		t.Skipf("SKIPPED: no %s is installed; `make test` installs it", name)
	}
	return path
}

// promtool runs promtool. It must succeed and print nothing that looks like a complaint.
func promtool(t *testing.T, input string, args ...string) string {
	t.Helper()
	c := exec.CommandContext(t.Context(), program(t, "promtool"), args...)
	c.Stdin = strings.NewReader(input)
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("promtool %v: %v\n%s", args, err, out)
	}
	return string(out)
}

func TestPromtoolMetrics(t *testing.T) {
	reg := prometheus.NewRegistry()
	use(newMetrics(t, reg, dibsprom.Config{}).Hooks(), "order:1")
	if out := promtool(t, exposition(t, reg), "check", "metrics"); out != "" {
		t.Error(out)
	}
}

func TestPromtoolRules(t *testing.T) {
	if out := promtool(t, "", "check", "rules", "alerts.yml"); !strings.Contains(out, "SUCCESS: 8 rules found") {
		t.Error(out)
	}
	promtool(t, "", "test", "rules", "alerts_test.yml")
}

// Each rule should have a time at which it fires, and a time at which it does not.
func TestEachRuleIsTested(t *testing.T) {
	rules, err := os.ReadFile("alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	tests, err := os.ReadFile("alerts_test.yml")
	if err != nil {
		t.Fatal(err)
	}
	fires, silent := make(map[string]bool), make(map[string]bool)
	for _, one := range strings.Split(string(tests), "- alertname: ")[1:] {
		name, rest, _ := strings.Cut(one, "\n")
		if strings.Contains(rest, "exp_alerts:") {
			fires[name] = true
		} else {
			silent[name] = true
		}
	}
	for _, rule := range strings.Split(string(rules), "- alert: ")[1:] {
		if name, _, _ := strings.Cut(rule, "\n"); !fires[name] || !silent[name] {
			t.Errorf("%s: tested where it fires: %t, where it does not: %t", name, fires[name], silent[name])
		}
	}
}

// service is a process that holds a lock and serves its metrics. It prints its address. After a
// request for /fail, the store confirms no renewal.
func service(out io.Writer, _ []string) error {
	store := newFaulty()
	reg := prometheus.NewRegistry()
	m, err := dibsprom.New(reg, dibsprom.Config{})
	if err != nil {
		return err
	}
	locks := dibs.New(store, dibs.Observe(m.Hooks()), dibs.TTL(12*time.Second))
	lease, err := locks.Mutex("order:4711").Lock(context.Background())
	if err != nil {
		return err
	}
	http.Handle("/metrics", promhttp.HandlerFor(reg, promhttp.HandlerOpts{Registry: reg}))
	http.HandleFunc("/fail", func(http.ResponseWriter, *http.Request) { store.Fail(unavailable(), "extend") })
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Fprintln(out, listener.Addr())
	go func() {
		<-lease.Context().Done()
		fmt.Fprintln(out, "lost")
	}()
	return http.Serve(listener, nil) // until the process is killed
}

// Prometheus scrapes a process with the rules in alerts.yml. When renewals fail, the alert must
// fire while the lease is still held. A second must fire when it is lost.
func TestPrometheus(t *testing.T) {
	t.Parallel()
	bin := program(t, "prometheus")
	child := childtest.Start(t, "service")
	target := child.Line()
	server := startPrometheus(t, bin, fmt.Sprintf("scrape_configs: [{job_name: service, static_configs: [{targets: [%q]}]}]\n", target))

	server.wait(t, `dibs_holding{class="order:*"} == 1`)
	server.wait(t, `dibs_renew_failed_total{class="order:*"} == 0`)
	server.wait(t, `dibs_acquire_seconds_count{class="order:*", kind="mutex", result="acquired"} == 1`)
	if firing := server.firing(t); len(firing) > 0 {
		t.Errorf("alerts %v before a failure", firing)
	}

	response, err := http.Get("http://" + target + "/fail")
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	server.waitFiring(t, "DibsRenewalFailing order:*")
	select {
	case line := <-child.Lines():
		t.Errorf("%q before the alert", line)
	default:
	}
	server.waitFiring(t, "DibsLeaseLost order:* expired")
	server.wait(t, `dibs_holding{class="order:*"} == 0`)
}

// A prometheusServer is a test's server.
type prometheusServer struct{ addr string }

// startPrometheus starts a server with a configuration for scraping. It ends with the test.
func startPrometheus(t *testing.T, bin, scrapes string) prometheusServer {
	t.Helper()
	dir := t.TempDir()
	rules, err := filepath.Abs("alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(dir, "prometheus.yml")
	text := fmt.Sprintf(`global: {scrape_interval: 500ms, scrape_timeout: 500ms, evaluation_interval: 500ms}
rule_files: [%q]
%s`, rules, scrapes)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	port, err := spawn.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	s := prometheusServer{net.JoinHostPort("127.0.0.1", strconv.Itoa(port))}
	log := filepath.Join(dir, "log")
	run, err := spawn.Start(bin, []string{"--config.file", config, "--storage.tsdb.path", filepath.Join(dir, "data"), "--web.listen-address", s.addr}, log, nil, syscall.SIGKILL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		run.End(syscall.SIGTERM, patience)
		if text, err := os.ReadFile(log); t.Failed() {
			t.Logf("%s%v", text, err)
		}
	})
	return s
}

// get decodes the reply to an API request, or returns false if there is none.
func (s prometheusServer) get(t *testing.T, path string, data any) bool {
	t.Helper()
	response, err := http.Get("http://" + s.addr + "/api/v1/" + path)
	if err != nil { // it starts
		return false
	}
	defer response.Body.Close()
	reply := struct {
		Status string
		Data   any
	}{Data: data}
	return json.NewDecoder(response.Body).Decode(&reply) == nil && reply.Status == "success"
}

// wait waits until an expression has a value.
func (s prometheusServer) wait(t *testing.T, expression string) {
	t.Helper()
	s.poll(t, expression, func() bool {
		var data struct{ Result []any }
		return s.get(t, "query?query="+url.QueryEscape(expression), &data) && len(data.Result) == 1
	})
}

// firing returns the firing alerts' names and labels.
func (s prometheusServer) firing(t *testing.T) (alerts []string) {
	t.Helper()
	var data struct {
		Alerts []struct {
			State  string
			Labels map[string]string
		}
	}
	s.get(t, "alerts", &data)
	for _, a := range data.Alerts {
		if a.State == "firing" {
			alerts = append(alerts, strings.TrimSpace(a.Labels["alertname"]+" "+a.Labels["class"]+" "+a.Labels["reason"]))
		}
	}
	return alerts
}

func (s prometheusServer) waitFiring(t *testing.T, alert string) {
	t.Helper()
	s.poll(t, alert, func() bool {
		for _, have := range s.firing(t) {
			if have == alert {
				return true
			}
		}
		return false
	})
}

func (s prometheusServer) poll(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !condition(); time.Sleep(50 * time.Millisecond) { // between polls
		if time.Now().After(end) {
			t.Fatalf("%s: not within %v", what, patience)
		}
	}
}
