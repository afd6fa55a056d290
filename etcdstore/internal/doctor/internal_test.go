package doctor

import (
	"strings"
	"testing"

	"github.com/dibslock/dibs/checkup"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

func TestVersions(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][2]bool{ // ok, known
		"3.7.3": {true, true}, "3.5.13": {true, true}, "3.6.0": {true, true}, "3.6.0-rc.1": {true, true}, "4.0.0": {true, true}, "3.4.31": {true, true},
		"3.5.12": {false, true}, "3.5.0": {false, true}, "3.4.30": {false, true}, "3.4.23": {false, true}, "3.3.27": {false, true},
		"": {false, false}, "main": {false, false},
	} {
		if ok, known := isSound(text); [2]bool{ok, known} != want {
			t.Errorf("%q: have %t, %t, want %v", text, ok, known, want)
		}
	}
}

// Each reply that a test server does not give should be a finding about its member.
func TestStatuses(t *testing.T) {
	t.Parallel()
	for want, status := range map[string]*clientv3.StatusResponse{
		"warning: learner on a:1\n":              {Version: "3.6.1", IsLearner: true},
		"critical: version on a:1\n":             {Version: "3.5.9"},
		"unchecked: version on a:1\n":            {Version: "x"},
		"critical: alarm on a:1\n":               {Version: "3.6.1", Errors: []string{"memberID:1 alarm:CORRUPT "}},
		"warning: quota on a:1\n":                {Version: "3.4.31", DbSize: 1700 << 20, DbSizeInUse: 1600 << 20},
		"do     etcdctl defrag on each member, ": {Version: "3.6.1", DbSize: 80, DbSizeInUse: 8, DbSizeQuota: 100},
	} {
		status.Header = new(etcdserverpb.ResponseHeader)
		e := &examination{Server: checkup.Server{Report: new(checkup.Report), Ctx: t.Context()}, silent: []string{"b:1"}}
		e.members = []member{{"a:1", status}}
		e.checkMembers()
		found := e.Findings()
		if len(found) != 2 || !strings.Contains(found.String(), want) || !strings.Contains(found.String(), "warning: unreachable on b:1\n") {
			t.Errorf("want %q and unreachable, found:\n%v", want, found)
		}
	}
}
