package doctor_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/dibslock/dibs/checkup"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/test/checkuptest"
	"github.com/dibslock/dibs/internal/test/zktest"
	"github.com/dibslock/dibs/zkstore"
	"github.com/dibslock/dibs/zkstore/internal/doctor"
	"github.com/go-zookeeper/zk"
)

const prefix = "/team/locks"

// usual are settings with which a lock's usual TTL is on a session.
const usual = "maxSessionTimeout=60000"

func newTarget(t *testing.T, servers ...string) doctor.Target {
	t.Helper()
	target := doctor.Target{Servers: servers, ACL: zk.WorldACL(zk.PermAll), Prefix: prefix, Slack: func(tick time.Duration) time.Duration { return tick * 5 / 2 }}
	return withStore(t, target)
}

// newUser returns a target that logs in.
func newUser(t *testing.T, scheme, credentials string, servers ...string) doctor.Target {
	t.Helper()
	target := newTarget(t, servers...)
	target.ACL, target.Logins = zk.AuthACL(zk.PermAll), []doctor.Login{{Scheme: scheme, Credentials: []byte(credentials)}}
	return withStore(t, target, zkstore.Auth(scheme, []byte(credentials)))
}

func withStore(t *testing.T, target doctor.Target, options ...zkstore.Option) doctor.Target {
	t.Helper()
	s := zkstore.New(target.Servers, append(options, zkstore.Prefix(prefix))...)
	t.Cleanup(func() { _ = s.Close() })
	target.Store = s
	return target
}

// examine examines an ensemble. No write is slow.
func examine(t *testing.T, target doctor.Target) checkup.Findings {
	t.Helper()
	found, err := doctor.ExamineWith(t.Context(), target, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	checkuptest.WantSorted(t, found)
	return found
}

// without removes findings about a subject.
func without(found checkup.Findings, subjects ...string) checkup.Findings {
	return slices.DeleteFunc(found, func(f checkup.Finding) bool { return slices.Contains(subjects, f.Subject) })
}

func TestHealthyEnsemble(t *testing.T) {
	t.Parallel()
	c := zktest.NewCluster(t, 3, usual)
	if found := examine(t, newUser(t, "digest", "ann:secret", c.Endpoints()...)); len(found) > 0 {
		t.Errorf("found:\n%v", found)
	}
	if have := children(t, c.Endpoints()[0], "digest", "ann:secret"); !slices.Equal(have, []string{"%base", "%letters"}) {
		t.Errorf("the examination left %q", have)
	}
	checkuptest.WantOnly(t, examine(t, newUser(t, "digest", "ann:secret", c.Endpoints()[0])), checkup.Note, "endpoints", "one of 3 servers")
}

func children(t *testing.T, server, scheme, credentials string) []string {
	t.Helper()
	conn, _, err := zk.Connect([]string{server}, 10*time.Second, zk.WithLogInfo(false))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.AddAuth(scheme, []byte(credentials)); err != nil {
		t.Fatal(err)
	}
	var all []string
	if all, _, err = conn.Children(prefix); err != nil {
		t.Fatal(err)
	}
	slices.Sort(all)
	return slices.DeleteFunc(all, func(name string) bool { return name[0] != '%' }) // a container is removed later
}

// The store's Examine should be that of this package.
func TestExamine(t *testing.T) {
	t.Parallel()
	s := zkstore.New([]string{zktest.NewServer(t, usual).Endpoint()})
	defer s.Close()
	found, err := checkup.Examine(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	checkuptest.Want(t, found, checkup.Warning, "members", "one server")
	checkuptest.Want(t, found, checkup.Note, "acl", "below /locks")
	if _, err := checkup.Examine(t.Context(), zkstore.New(nil)); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("a store without a server: %v", err)
	}
}

func TestServersFail(t *testing.T) {
	t.Parallel()
	c := zktest.NewCluster(t, 3, usual, "-Dreadonlymode.enabled=true")
	target := newTarget(t, c.Endpoints()...)
	leader, err := c.NewLeader(-1)
	if err != nil {
		t.Fatal(err)
	}
	away := (leader + 1) % 3
	c.Partition(away)
	found := await(t, target, "read-only")
	checkuptest.Want(t, found, checkup.Warning, "read-only", "read-only on "+c.Members[away].Endpoint())
	checkuptest.Want(t, found, checkup.Warning, "followers", "1 of 2 followers")
	c.Members[away].Kill()
	checkuptest.Want(t, examine(t, target), checkup.Warning, "unreachable", "unreachable on "+c.Members[away].Endpoint())
	c.Members[leader].Kill()
	checkuptest.Want(t, await(t, target, "leader"), checkup.Critical, "leader", "no server serves clients")
	c.Members[(leader+2)%3].Kill()
	var u *driver.UnavailableError
	if found, err := doctor.Examine(t.Context(), target); !errors.As(err, &u) {
		t.Errorf("without servers: %v, %v", found, err)
	}
}

// await repeats the examination until there is a finding about a subject.
func await(t *testing.T, target doctor.Target, subject string) checkup.Findings {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		found := examine(t, target)
		if slices.ContainsFunc(found, func(f checkup.Finding) bool { return f.Subject == subject }) || ctx.Err() != nil {
			return found
		}
	}
}

func TestSettings(t *testing.T) {
	t.Parallel()
	s := zktest.NewServer(t, "tickTime=2000", "minSessionTimeout=3000", "maxSessionTimeout=20000", "4lw.commands.whitelist=srvr,conf")
	target := newTarget(t, s.Endpoint())
	found, err := doctor.ExamineWith(t.Context(), target, 1)
	if err != nil {
		t.Fatal(err)
	}
	checkuptest.Want(t, found, checkup.Critical, "tick", "tickTime is 2s, but the store assumes 1.5s")
	checkuptest.Want(t, found, checkup.Warning, "latency", "of 50")
	checkuptest.Want(t, found, checkup.Note, "session", "a lock with a TTL over 16.25s is a persistent znode")
	checkuptest.Want(t, found, checkup.Unchecked, "words", "words mntr")
	target.Tick = 2 * time.Second
	if found := without(examine(t, target), "members", "acl", "session", "words"); len(found) > 0 {
		t.Errorf("with Tick, found:\n%v", found)
	}
}

func TestRights(t *testing.T) {
	t.Parallel()
	endpoint := zktest.NewServer(t, usual).Endpoint()
	checkuptest.WantOnly(t, examine(t, newUser(t, "digest", "ann:secret", endpoint)), checkup.Warning, "members", "one server")
	checkuptest.Want(t, examine(t, newUser(t, "digest", "bob:secret", endpoint)), checkup.Critical, "rights", "setAcl -R /team/locks")
	checkuptest.Want(t, examine(t, newTarget(t, endpoint)), checkup.Critical, "rights", "log in as in zkstore.Auth")
	checkuptest.Want(t, examine(t, newUser(t, "unknown", "ann:secret", endpoint)), checkup.Critical, "login", "the login failed")
}
