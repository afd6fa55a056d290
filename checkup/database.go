package checkup

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/dibslock/dibs/driver"
)

// A DatabaseStore is a store in a database.
type DatabaseStore interface {
	driver.Store
	SchemaVersion(ctx context.Context) (int, error)
}

// A Database examines a database, with the data shared by its checks.
type Database struct {
	Server
	Store    DatabaseStore
	Start    TimeSample        // when the examination began
	Settings map[string]string // a session's settings
	Unusable bool              // a finding already says that no lock can be acquired
}

const noLocks = "nothing can be locked"

// Late is the consequence of missing notifications.
const Late = "waiters are not notified: they retry, so a hand-off takes longer"

// CollectDatabase calls examine for the database of a store if that can be reached. The function
// denied reports whether an error means that the user lacks a right: a check reports such errors.
func CollectDatabase(ctx context.Context, s DatabaseStore, denied func(error) bool, examine func(Database)) (Findings, error) {
	return Collect(ctx, func(ctx context.Context, r *Report) error {
		const soon = 5 * time.Second
		reaching, cancel := context.WithTimeout(ctx, soon)
		defer cancel()
		if _, err := s.SchemaVersion(reaching); err != nil && !denied(err) {
			return err
		}
		r.Visited(nil)
		examine(Database{Server: Server{Report: r, Ctx: ctx}, Store: s})
		return nil
	})
}

// Is reports whether a setting has any of these values. It returns false if the server does not
// report the setting.
func (d *Database) Is(setting string, values ...string) bool {
	have, ok := d.Settings[setting]
	return ok && slices.ContainsFunc(values, func(value string) bool { return strings.EqualFold(have, value) })
}

// CheckConnections reports that a server will refuse connections soon.
func (d *Database) CheckConnections(used, most int, remedy string) {
	d.AddAll(If(most > 0 && 10*used >= 9*most, Warning, "connections", fmt.Sprintf("%d of %d connections are in use", used, most),
		"a new connection may be refused: then nothing can be locked, and leases that cannot be renewed are lost", remedy))
}

// A Schema is the location of a store's tables and routines, and the list of those needed by this
// program.
type Schema struct {
	Place          string // "the database"
	Version        int
	Tables         []string
	Routine        string            // the word for routines: "function"
	Routines       map[string]string // their texts by name
	IfNone, IfSome string            // remedies if all or some tables or routines are missing
}

// CheckTables compares a database's tables, by name, with the schema's tables.
func (d *Database) CheckTables(s Schema, have map[string]string) {
	d.checkMissing(s, "table", s.Tables, have)
}

// CheckRoutines compares a database's routines with the schema's: their texts by name. A text is
// empty if the user cannot read it.
func (d *Database) CheckRoutines(s Schema, have map[string]string) {
	want := slices.Sorted(maps.Keys(s.Routines))
	if len(missing(have, want)) == len(want) {
		d.checkVersion(s)
	}
	d.checkMissing(s, s.Routine, want, have)
	differ := slices.DeleteFunc(want, func(name string) bool { return have[name] == "" || sameCode(have[name], s.Routines[name]) })
	d.AddAll(If(len(differ) > 0, Critical, "schema", fmt.Sprintf("%ss that are not of this release of dibs: %s", s.Routine, List(differ)),
		"locks of this version may not exclude each other", "compare them with the output of dibs migrate --print, and replace them as their owner"))
}

// checkVersion explains why tables exist, but no routines for this program.
func (d *Database) checkVersion(s Schema) {
	if d.Unusable {
		return
	}
	version, err := d.Store.SchemaVersion(d.Ctx)
	if d.Unchecked("schema", "the version of the tables", err) {
		return
	}
	d.Unusable = version != s.Version
	d.AddAll(
		If(version < s.Version, Critical, "schema", fmt.Sprintf("%s has version %d of the tables, but this program needs version %d", s.Place, version, s.Version),
			noLocks, "dibs migrate, or Migrate of the store, as the owner of the tables"),
		If(version > s.Version, Critical, "schema", fmt.Sprintf("%s has version %d of the tables, which has removed version %d of this program", s.Place, version, s.Version),
			noLocks, "use a later release of dibs in this program"),
	)
}

// checkMissing reports the missing tables or routines, once.
func (d *Database) checkMissing(s Schema, kind string, want []string, have map[string]string) {
	lacks := missing(have, want)
	if len(lacks) == 0 || d.Unusable {
		return
	}
	d.Unusable = true
	remedy := s.IfNone
	if len(lacks) < len(want) {
		remedy = s.IfSome
	}
	d.Find(Critical, "schema", fmt.Sprintf("%s lacks a %s: %s", s.Place, kind, List(lacks)), noLocks, remedy)
}

// TryLock runs a lock trial. It returns false if the trial would show nothing new.
func (d *Database) TryLock(listens bool) (result Result, tried bool) {
	if d.Unusable || d.Ctx.Err() != nil {
		return result, false
	}
	t := Trial{Store: d.Store}
	if listens {
		t.Watch = d.Store.Watch
	}
	result = t.Run(d.Ctx)
	return result, d.Ctx.Err() == nil
}

// FailedLock returns a finding if a lock could not be acquired or released.
func (r Result) FailedLock() Findings {
	return If(r.Lock != nil, Critical, "lock", fmt.Sprintf("a lock on a random name failed: %v", r.Lock),
		"other locks will fail too", "see the other findings and the error")
}

// FailedGrant returns a finding if a trial's waiter was not notified.
func (r Result) FailedGrant(remedy string) Findings {
	return If(r.Grant != nil, Warning, "notifications", fmt.Sprintf("no notification of a hand-off: %v", r.Grant),
		Late, remedy)
}
