package redisstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Doctor looks at each server of the store for what hurts locks: settings that drop
// or forget them, states in which they are refused, rights that are missing, clocks.
// It tries as well: on a random name it takes a lock, lets another claim wait
// for it, and hands it on, on each master of a cluster.
//
// It changes no setting, and touches nobody's lock. Its own keys are gone when it
// returns, or end by themselves if it is interrupted, but for one [highwater] on each
// master, a number that stays.
//
// What could not be looked at is a finding too. The error is for a store that could
// not be reached at all. Doctor ends soon after ctx does, and within half a minute.
// docs/doctor.md lists what it finds.
//
// [highwater]: https://github.com/dibslock/dibs/blob/main/docs/spec.md#fences
func (s *Store) Doctor(ctx context.Context) (Findings, error) {
	const longest = 30 * time.Second
	if err := s.replicas.check(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	d := new(report)
	return d.findings(s.visit(ctx, d))
}

// visit examines the masters. It does not outlast ctx, though the client may.
func (s *Store) visit(ctx context.Context, d *report) error {
	const grace = 200 * time.Millisecond // for what has been cut short to be told
	ended := make(chan error, 1)
	go func() {
		ended <- s.conn.Masters(ctx, func(n Node) error {
			e := &nodeCheck{
				store: s, ctx: ctx, node: n, report: d, user: "USER",
				failed: make(map[string]error), missing: make(map[string][]string),
			}
			e.examine()
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

// A Severity says how much a Finding matters.
type Severity int

// The severities, from the least.
const (
	Note      Severity = iota // good to know
	Unchecked                 // could not be looked at
	Warning                   // locks are lost, refused or slow once something happens: a restart, a failover
	Critical                  // locks do not work now, or may be lost while nothing fails
)

func (s Severity) String() string {
	if s < Note || s > Critical {
		return "Severity(" + count(int(s)) + ")"
	}
	return [...]string{"note", "unchecked", "warning", "critical"}[s]
}

// A Finding is one thing that Doctor found.
type Finding struct {
	Severity    Severity
	Node        string // the server's address; empty if there is only one
	Subject     string // a word that stays the same: "eviction"
	What        string // what was found
	Consequence string // what it means for locks
	Remedy      string // what to do about it
}

// String is the finding in four lines.
func (f Finding) String() string {
	head := f.Severity.String() + ": " + f.Subject
	if f.Node != "" {
		head += " on " + f.Node
	}
	return fmt.Sprintf("%s\n  found  %s\n  so     %s\n  do     %s\n", head, f.What, f.Consequence, f.Remedy)
}

// Findings are what Doctor found: what matters most comes first, then by node.
type Findings []Finding

// Worst is the gravest severity, and Note if nothing was found.
func (f Findings) Worst() Severity {
	worst := Note
	for _, one := range f {
		worst = max(worst, one.Severity)
	}
	return worst
}

// String is all findings, with an empty line between. What was found on several servers
// alike is told once.
func (f Findings) String() string {
	if len(f) == 0 {
		return "nothing found\n"
	}
	var each []Finding
	nodes := make(map[Finding][]string)
	for _, one := range f {
		node := one.Node
		one.Node = ""
		if nodes[one] == nil {
			each = append(each, one)
		}
		nodes[one] = append(nodes[one], node)
	}
	texts := make([]string, len(each))
	for i, one := range each {
		one.Node = strings.Join(nodes[one], ", ")
		texts[i] = one.String()
	}
	return strings.Join(texts, "\n")
}

// A diagnosis is what is found so far, so that Doctor can leave with it while a client
// that heeds no context is still at it.
type report struct {
	mu      sync.Mutex
	found   Findings
	reached bool  // a server answered something
	dead    error // why others did not
}

func (d *report) add(f Finding) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.found = append(d.found, f)
}

// visited notes whether a server answered, or why it did not.
func (d *report) visited(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.reached, d.dead = d.reached || err == nil, errors.Join(d.dead, err)
}

// findings is what Doctor returns, given what cut the visits short.
func (d *report) findings(cut error) (Findings, error) {
	if cut != nil {
		d.add(Finding{
			Severity: Unchecked, Subject: "unvisited", What: fmt.Sprintf("not all servers were visited, or not to the end: %v", cut),
			Consequence: "what else is wrong is not known",
			Remedy:      "give Doctor more time, and see that the client reaches every master",
		})
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.reached {
		return nil, wrapError("doctor", "", cmp.Or(errors.Join(cut, d.dead), errors.New("the client knows no server")))
	}
	return slices.SortedStableFunc(slices.Values(d.found), func(a, b Finding) int {
		return cmp.Or(cmp.Compare(b.Severity, a.Severity), strings.Compare(a.Node, b.Node))
	}), nil
}

// An exam is what Doctor does with one server, and what it knows of it.
type nodeCheck struct {
	*report
	store       *Store
	ctx         context.Context
	node        Node
	unreachable error // why the server is not asked any more

	facts         map[string]string   // what INFO, CONFIG GET and CLUSTER INFO tell
	failed        map[string]error    // why one of these, or another source, tells nothing
	missing       map[string][]string // what it should have told
	startTime     timeSample
	user          string
	cannotPublish bool // the user may not publish, which is told
}

// The settings that are looked at; INFO tells the others.
var checkedSettings = []string{"appendfsync", "no-appendfsync-on-rewrite", "save", "stop-writes-on-bgsave-error", "min-replicas-to-write"}

func (e *nodeCheck) examine() {
	e.facts = infoFields(e.text("INFO"))
	switch {
	case e.unreachable == nil:
		e.visited(nil)
	case e.ctx.Err() != nil:
		return // the visit is cut short, which is told once
	default:
		e.visited(e.unreachable)
		e.find(Critical, "unreachable", fmt.Sprintf("no answer: %v", e.unreachable),
			"its names cannot be locked, nor renewed",
			"see that it runs, and that the network lets this machine through")
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
	cmds := make([]Cmd, len(checkedSettings))
	for i, name := range checkedSettings {
		cmds[i] = Cmd{"CONFIG", "GET", name} // each alone: before Redis 7 it takes no more
	}
	for i, r := range e.do(cmds...) {
		if r.Err != nil {
			e.failed["CONFIG GET"] = r.Err
			e.markMissing("CONFIG GET", checkedSettings[i])
		}
		maps.Copy(e.facts, pairs(r.Value))
	}
}

func (e *nodeCheck) find(severity Severity, subject, what, consequence, remedy string) {
	e.add(Finding{severity, e.node.Addr, subject, what, consequence, remedy})
}

// A row is a finding, and whether it is one.
type candidate struct {
	applies                            bool
	severity                           Severity
	subject, what, consequence, remedy string
}

// each finds all rows that are so.
func (e *nodeCheck) addAll(rows ...candidate) {
	for _, r := range rows {
		if r.applies {
			e.find(r.severity, r.subject, r.what, r.consequence, r.remedy)
		}
	}
}

// first finds the first row that is so.
func (e *nodeCheck) addFirst(rows ...candidate) {
	if i := slices.IndexFunc(rows, func(r candidate) bool { return r.applies }); i >= 0 {
		e.addAll(rows[i])
	}
}

// do is Do of the node. A server that did not answer is not asked again: that could
// take seconds each time.
func (e *nodeCheck) do(cmds ...Cmd) []Reply {
	replies := make([]Reply, len(cmds))
	if e.unreachable = cmp.Or(e.unreachable, context.Cause(e.ctx)); e.unreachable != nil {
		for i := range replies {
			replies[i].Err = e.unreachable
		}
		return replies
	}
	e.node.Do(e.ctx, cmds, replies)
	for _, r := range replies {
		var server ServerError
		if r.Err != nil && !errors.As(r.Err, &server) {
			e.unreachable = r.Err
		}
	}
	return replies
}

func (e *nodeCheck) doOne(cmd ...string) Reply { return e.do(cmd)[0] }

// text is the reply of a source that tells text.
func (e *nodeCheck) text(cmd ...string) string {
	reply := e.doOne(cmd...)
	text, ok := reply.Value.(string)
	if !ok {
		e.failed[strings.Join(cmd, " ")] = cmp.Or(reply.Err, unexpected(reply.Value))
	}
	return text
}

// pairs reads a list of names and values, which some clients make a map of.
func pairs(v any) map[string]string {
	list, _ := v.([]any)
	if byName, ok := v.(map[any]any); ok {
		for name, value := range byName {
			list = append(list, name, value)
		}
	}
	read := make(map[string]string)
	for i := 0; i+1 < len(list); i += 2 {
		read[fmt.Sprint(list[i])] = fmt.Sprint(list[i+1])
	}
	return read
}

// miss notes what a source should have told.
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

// atLeast returns a number that not every server tells, or 0.
func (e *nodeCheck) optionalNumber(name string) int64 {
	n, _ := strconv.ParseInt(e.facts[name], 10, 64)
	return n
}

// tellMissing makes one finding of all that one source did not tell.
func (e *nodeCheck) reportMissing() {
	for _, source := range slices.Sorted(maps.Keys(e.missing)) {
		names := strings.Join(slices.Compact(slices.Sorted(slices.Values(e.missing[source]))), ", ")
		what := fmt.Sprintf("%s does not tell %s", source, names)
		remedy := "look them up in the server's configuration, or where its provider shows it"
		if err := e.failed[source]; err != nil {
			what = fmt.Sprintf("%s failed: %v", source, err)
			if strings.Contains(err.Error(), "NOPERM") {
				right := strings.ReplaceAll(strings.ToLower(source), " ", "|")
				remedy = fmt.Sprintf("ACL SETUSER %s +%s, if only for as long as Doctor runs", e.user, right)
			}
		}
		e.find(Unchecked, strings.ToLower(source), what,
			"not looked at: "+names,
			remedy)
	}
}
