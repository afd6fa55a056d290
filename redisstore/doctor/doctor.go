// Package doctor examines a Redis that a redisstore.Store uses: is it suitable for locks?
package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/redisstore"
	"github.com/dibslock/dibs/redisstore/internal/wire"
	"github.com/dibslock/dibs/redisstore/redisconn"
)

// Check checks each server of a store for problems that affect locks: settings that
// evict or lose them, states in which requests are refused, missing permissions, clocks.
// It also runs a smoke test on each master: on a random name it acquires a lock, queues a
// second request for it, and hands it off.
//
// It changes no setting and no lock of others. Its own keys are deleted before it
// returns, or expire if it is interrupted. One fence [high-water mark] remains on each
// master.
//
// A check that could not be made is a finding too. The error means that the store could
// not be reached at all. Check returns soon after ctx ends, and within 30 s.
// docs/doctor.md lists the findings.
//
// [high-water mark]: https://github.com/dibslock/dibs/blob/main/docs/spec.md#fences
func Check(ctx context.Context, s *redisstore.Store) (driver.Findings, error) {
	const longest = 30 * time.Second
	target, err := s.Target()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	d := new(report)
	return d.findings(visit(ctx, s, target, d))
}

// visit checks the masters. It returns soon after ctx ends, even if the client does not.
func visit(ctx context.Context, s *redisstore.Store, target redisstore.Target, d *report) error {
	const grace = 200 * time.Millisecond // for checks that were cut short to report it
	ended := make(chan error, 1)
	go func() {
		ended <- target.Conn.Masters(ctx, func(n redisconn.Node) error {
			check := &nodeCheck{
				store: s, target: target, ctx: ctx, node: n, report: d, user: "USER",
				failed: make(map[string]error), missing: make(map[string][]string),
			}
			check.examine()
			return context.Cause(ctx)
		})
	}()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-ended:
		return err
	case <-time.After(grace):
		return context.Cause(ctx)
	}
}

// A report collects findings. Check can return it while a client that ignores its
// context is still busy.
type report struct {
	mu       sync.Mutex
	found    driver.Findings
	reached  bool  // a server replied
	failures error // why other servers did not
}

func (d *report) add(f driver.Finding) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.found = append(d.found, f)
}

// visited records whether a server replied; err is nil if it did.
func (d *report) visited(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.reached, d.failures = d.reached || err == nil, errors.Join(d.failures, err)
}

// findings returns Check's results. cut is the error that ended the visits early, or
// nil.
func (d *report) findings(cut error) (driver.Findings, error) {
	if cut != nil {
		d.add(driver.Finding{
			Severity: driver.Unchecked, Subject: "unvisited", What: fmt.Sprintf("not all servers were checked completely: %v", cut),
			Consequence: "there may be more problems",
			Remedy:      "give Doctor more time, and check that the client reaches every master",
		})
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.reached {
		return nil, unreachable(cmp.Or(errors.Join(cut, d.failures), errors.New("the client knows no server")))
	}
	return slices.SortedStableFunc(slices.Values(d.found), func(a, b driver.Finding) int {
		return cmp.Or(cmp.Compare(b.Severity, a.Severity), strings.Compare(a.Node, b.Node))
	}), nil
}

// unreachable returns the error of a store none of whose servers has replied.
func unreachable(cause error) error {
	if errors.Is(cause, driver.ErrInvalid) {
		return fmt.Errorf("doctor: %w", cause)
	}
	if errors.Is(cause, io.EOF) {
		cause = fmt.Errorf("%w; if this is a proxy without HELLO, such as twemproxy: proxy=true in a URL, or a client as in docs/redis.md", cause)
	}
	return &driver.UnavailableError{Op: "doctor", Cause: cause}
}

// A nodeCheck checks one server, and holds what is known about it.
type nodeCheck struct {
	*report
	store       *redisstore.Store
	target      redisstore.Target
	ctx         context.Context
	node        redisconn.Node
	unreachable error // why the server gets no more commands

	facts         map[string]string   // fields of INFO, CONFIG GET and CLUSTER INFO
	failed        map[string]error    // errors of these and other sources
	missing       map[string][]string // names that a source should have returned
	startTime     timeSample
	user          string
	cannotPublish bool // the user may not publish; this is a finding already

	answersScripts bool // a script has written several keys
	refusesSlots   bool // a script with keys of several slots was refused
}

// The settings that are read; INFO contains the others.
var checkedSettings = []string{"appendfsync", "no-appendfsync-on-rewrite", "save", "stop-writes-on-bgsave-error", "min-replicas-to-write"}

func (e *nodeCheck) examine() {
	if e.checkRouting() {
		e.visited(nil)
		return
	}
	e.facts = wire.ParseInfo(e.text("INFO"))
	switch {
	case e.answersScripts && (errors.Is(e.unreachable, io.EOF) || errors.Is(e.unreachable, syscall.ECONNRESET)):
		e.visited(nil)
		e.reportClosing()
		return
	case e.unreachable == nil:
		e.visited(nil)
	case e.ctx.Err() != nil:
		return // the visit is cut short, which is a finding of its own
	default:
		e.visited(e.unreachable)
		e.find(driver.Critical, "unreachable", fmt.Sprintf("no answer: %v", e.unreachable),
			"its names cannot be locked, and leases cannot be renewed",
			"check that it runs, and that this machine may connect to it")
		return
	}
	e.readSettings()
	e.startTime = e.readServerTime()
	for _, look := range checks {
		look(e)
	}
	e.reportMissing()
}

func (e *nodeCheck) readSettings() {
	cmds := make([]redisconn.Cmd, len(checkedSettings))
	for i, name := range checkedSettings {
		cmds[i] = redisconn.Command("CONFIG", "GET", name) // one at a time: before Redis 7 CONFIG GET takes one name only
	}
	for i, r := range e.do(cmds...) {
		if r.Err != nil {
			e.failed["CONFIG GET"] = r.Err
			e.markMissing("CONFIG GET", checkedSettings[i])
		}
		maps.Copy(e.facts, wire.ParsePairs(r.Value))
	}
}

func (e *nodeCheck) find(severity driver.Severity, subject, what, consequence, remedy string) {
	e.add(driver.Finding{Severity: severity, Node: e.node.Addr, Subject: subject, What: what, Consequence: consequence, Remedy: remedy})
}

// A candidate is a finding that is reported if applies is set.
type candidate struct {
	applies                            bool
	severity                           driver.Severity
	subject, what, consequence, remedy string
}

// addAll reports all candidates that apply.
func (e *nodeCheck) addAll(candidates ...candidate) {
	for _, r := range candidates {
		if r.applies {
			e.find(r.severity, r.subject, r.what, r.consequence, r.remedy)
		}
	}
}

// addFirst reports the first candidate that applies.
func (e *nodeCheck) addFirst(candidates ...candidate) {
	if i := slices.IndexFunc(candidates, func(r candidate) bool { return r.applies }); i >= 0 {
		e.addAll(candidates[i])
	}
}

// do sends commands to the node. A server that did not reply gets no further commands:
// each could take seconds.
func (e *nodeCheck) do(cmds ...redisconn.Cmd) []redisconn.Reply {
	replies := make([]redisconn.Reply, len(cmds))
	if e.unreachable = cmp.Or(e.unreachable, context.Cause(e.ctx)); e.unreachable != nil {
		for i := range replies {
			replies[i].Err = e.unreachable
		}
		return replies
	}
	e.node.Do(e.ctx, cmds, replies)
	for _, r := range replies {
		var server redisconn.ServerError
		if r.Err != nil && !errors.As(r.Err, &server) {
			e.unreachable = r.Err
		}
	}
	return replies
}

func (e *nodeCheck) doOne(words ...string) redisconn.Reply {
	return e.do(redisconn.Command(words...))[0]
}

// text returns the reply of a source that returns text.
func (e *nodeCheck) text(cmd ...string) string {
	reply := e.doOne(cmd...)
	text, ok := reply.Value.(string)
	if !ok {
		e.failed[strings.Join(cmd, " ")] = cmp.Or(reply.Err, redisconn.Unexpected(reply.Value))
	}
	return text
}

// markMissing records a name that a source should have returned.
func (e *nodeCheck) markMissing(source, name string) {
	e.missing[source] = append(e.missing[source], name)
}

func (e *nodeCheck) info(name string) (string, bool) {
	value, ok := e.facts[name]
	if !ok {
		e.markMissing(sourceOf(name), name)
	}
	return value, ok
}

func (e *nodeCheck) infoNumber(name string) (int64, bool) {
	n, err := strconv.ParseInt(e.facts[name], 10, 64)
	if err != nil {
		e.markMissing(sourceOf(name), name)
	}
	return n, err == nil
}

func sourceOf(fact string) string {
	if slices.Contains(checkedSettings, fact) {
		return "CONFIG GET"
	}
	return "INFO"
}

// optionalNumber returns a number that not every server reports, or 0.
func (e *nodeCheck) optionalNumber(name string) int64 {
	n, _ := strconv.ParseInt(e.facts[name], 10, 64)
	return n
}

// reportMissing makes one finding for all names that a source did not return.
func (e *nodeCheck) reportMissing() {
	for _, source := range slices.Sorted(maps.Keys(e.missing)) {
		names := strings.Join(slices.Compact(slices.Sorted(slices.Values(e.missing[source]))), ", ")
		what := fmt.Sprintf("%s does not contain %s", source, names)
		remedy := "look them up in the server's configuration, or in its provider's console"
		if err := e.failed[source]; err != nil {
			what = fmt.Sprintf("%s failed: %v", source, err)
			if strings.Contains(err.Error(), "NOPERM") {
				right := strings.ReplaceAll(strings.ToLower(source), " ", "|")
				remedy = fmt.Sprintf("ACL SETUSER %s +%s, at least while Doctor runs", e.user, right)
			}
		}
		e.find(driver.Unchecked, strings.ToLower(source), what,
			"not checked: "+names,
			remedy)
	}
}
