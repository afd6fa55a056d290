package redisstore_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/internal/test/carried"
	"github.com/dibslock/dibs/internal/test/redistest"
	"github.com/dibslock/dibs/redisstore/internal/wire"
)

// coalescedCall calls the script for coalesced requests: "name token ttl" each.
func coalescedCall(t *testing.T, server *redistest.Server, until string, requests ...string) (now int64, statuses string) {
	t.Helper()
	keys, kinds, args := []string(nil), "", []string(nil)
	for _, request := range requests {
		name, rest, _ := strings.Cut(request, " ")
		token, ttl, _ := strings.Cut(rest, " ")
		keys = append(keys, "lock:"+name, "{lock:"+name+"}"+queue, "{lock:"+name+"}"+meta)
		args = append(args, token)
		if ttl == "0" {
			kinds += "r"
			continue
		}
		kinds += "a"
		keys = append(keys, highwaters+"{"+name[:1]+"}")
		args = append(args, ttl)
	}
	cmd := append([]string{"EVAL", wire.Plain().Coalesced.Text, strconv.Itoa(len(keys))}, keys...)
	cmd = append(cmd, until, kinds, "", "")
	reply, _ := server.MustCmd(t, append(cmd, args...)...).([]any)
	if len(reply) != 2 {
		t.Fatalf("%v to %q", reply, requests)
	}
	now, _ = reply[0].(int64)
	statuses, _ = reply[1].(string)
	return now, statuses
}

// Free locks should be acquired, each with its own fence; held locks without waiters should be
// released; everything else should be unchanged.
func TestCoalesced(t *testing.T) {
	t.Parallel()
	const until = "99999999999999999"
	const ttl = " 60000"
	server := redistest.Start(t)
	set := func(args ...string) { server.MustCmd(t, args...) }
	set("SET", "lock:taken", "other", "PX", "60000")
	set("SET", "lock:mine", "1700000000000017 me", "PX", "60000")
	set("HSET", "{lock:mine}"+meta, "=", "1 client me")
	for name, value := range map[string]string{"longer": "xme", "small": "5 me", "behind": "me 1700000000000017", "within": "1700000000000017 mex"} {
		set("SET", "lock:"+name, value, "PX", "60000")
	}
	set("SET", "lock:wanted", "me", "PX", "60000")
	set("ZADD", "{lock:wanted}"+queue, "1", "entry")
	set("ZADD", "{lock:queued}"+queue, "1", "entry")
	set("HSET", "{lock:signed}"+meta, "=", "1 client me")
	set("SET", "lock:shared", "dibs:shared 1", "PX", "60000")
	set("ZADD", "lock:parts", "99999999999999", "me")
	set("SET", "lock:plain", "me", "PX", "60000")
	set("SET", "lock:odd", "me", "PX", "60000")
	set("LPUSH", "{lock:odd}"+meta, "not metadata")
	now, statuses := coalescedCall(t, server, until,
		"a me"+ttl, "plain me 0", "b me"+ttl, "again me"+ttl, "taken me"+ttl, "queued me"+ttl, "signed me"+ttl, "shared me"+ttl,
		"mine me 0", "taken me 0", "wanted me 0", "parts me 0", "nobodys me 0", "odd me 0", "longer me 0", "small me 0", "behind me 0", "within me 0",
	)
	if want := "111200001200200000"; statuses != want {
		t.Errorf("statuses %s, want %s", statuses, want)
	}
	if now < time.Now().Add(-time.Minute).UnixMicro() {
		t.Errorf("the time is %d", now)
	}
	for key, want := range map[string]any{
		"lock:a": fmt.Sprintf("%d me", now), "lock:b": fmt.Sprintf("%d me", now), "lock:taken": "other", "lock:mine": nil, "lock:wanted": "me", "lock:plain": nil,
		"lock:queued": nil, "lock:signed": nil, "lock:again": fmt.Sprintf("%d me", now+1), "lock:odd": "me",
		"lock:longer": "xme", "lock:small": "5 me", "lock:behind": "me 1700000000000017", "lock:within": "1700000000000017 mex",
		highwaters + "{a}": strconv.FormatInt(now+1, 10), // also again's; {b} is not checked
	} {
		if have := server.MustCmd(t, "GET", key); have != want {
			t.Errorf("%s is %v, want %v", key, have, want)
		}
	}
	for _, key := range []string{"lock:shared", "lock:parts", "{lock:wanted}" + queue, "{lock:queued}" + queue, "{lock:signed}" + meta, "{lock:odd}" + meta} {
		if server.MustCmd(t, "EXISTS", key) != int64(1) {
			t.Errorf("%s was deleted", key)
		}
	}
	if server.MustCmd(t, "EXISTS", "{lock:mine}"+meta) != int64(0) {
		t.Error("metadata of a released lock are left")
	}
	if ms, _ := server.MustCmd(t, "PTTL", "lock:a").(int64); ms <= 0 || ms > 60000 {
		t.Errorf("its TTL is %d ms", ms)
	}
	set("SET", highwaters+"{c}", "9000000000000000") // the clock went back since
	if _, statuses := coalescedCall(t, server, until, "c me"+ttl); statuses != "0" || server.MustCmd(t, "GET", highwaters+"{c}") != "9000000000000000" {
		t.Errorf("status %s with a highwater ahead of the time, which is %v now", statuses, server.MustCmd(t, "GET", highwaters+"{c}"))
	}
	// Times are compared as text if they have as many digits.
	set("SET", highwaters+"{d}", "7")
	now, statuses = coalescedCall(t, server, strconv.FormatInt(now+time.Hour.Microseconds(), 10), "d me"+ttl)
	if statuses != "1" || server.MustCmd(t, "GET", highwaters+"{d}") != strconv.FormatInt(now, 10) {
		t.Errorf("status %s; the highwater is %v, want %d", statuses, server.MustCmd(t, "GET", highwaters+"{d}"), now)
	}
	set("LPUSH", highwaters+"{e}", "not a highwater")
	if _, statuses := coalescedCall(t, server, until, "e me"+ttl); statuses != "0" || server.MustCmd(t, "EXISTS", "lock:e") != int64(0) {
		t.Errorf("status %s without a highwater", statuses)
	}
}

// After its time a call changes nothing, and each request is to be sent alone.
func TestCoalescedCallIsVoid(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	server.MustCmd(t, "SET", "lock:mine", "me", "PX", "60000")
	now, _ := coalescedCall(t, server, "", "other me 0")
	for _, until := range []string{"0", "5", strconv.FormatInt(now-1, 10)} {
		if _, statuses := coalescedCall(t, server, until, "free me 60000", "mine me 0"); statuses != "00" {
			t.Errorf("until %q: statuses %s, want 00", until, statuses)
		}
	}
	if free, mine := server.MustCmd(t, "EXISTS", "lock:free"), server.MustCmd(t, "GET", "lock:mine"); free != int64(0) || mine != "me" {
		t.Errorf("lock:free exists: %v; lock:mine is %v", free, mine)
	}
	if _, statuses := coalescedCall(t, server, "", "free me 60000", "mine me 0"); statuses != "11" {
		t.Errorf("without a time: statuses %s, want 11", statuses)
	}
}

// With many concurrent callers, some for the same name, each name should have a single holder at a
// time, fences should grow, and there should be fewer calls than requests.
func TestCoalescedCallers(t *testing.T) {
	t.Parallel()
	const callers, rounds = 48, 40
	server := redistest.Start(t)
	locks := dibs.New(open(t, server))
	defer locks.Close()
	type name struct {
		sync.Mutex
		fence uint64
	}
	names := make(map[string]*name)
	for i := range callers {
		names[fmt.Sprint(i/2%20)] = new(name) // two or three callers for each
		names["{tag}"+fmt.Sprint(i)] = new(name)
	}
	var group sync.WaitGroup
	for i := range callers {
		group.Go(func() {
			for round := range rounds {
				text := "{tag}" + fmt.Sprint(i) // all in the same slot
				if round%4 == 0 {
					text = fmt.Sprint(i / 2 % 20)
				}
				err := locks.Mutex(text).Do(t.Context(), func(ctx context.Context) error {
					n := names[text]
					if !n.TryLock() {
						t.Errorf("two holders of %q", text)
						return nil
					}
					defer n.Unlock()
					if fence := carried.Fence(ctx); fence <= n.fence {
						t.Errorf("fence %d of %q after %d", fence, text, n.fence)
					} else {
						n.fence = fence
					}
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	stats, _ := server.MustCmd(t, "INFO", "commandstats").(string)
	_, rest, _ := strings.Cut(stats, "cmdstat_evalsha:calls=")
	calls, _, _ := strings.Cut(rest, ",")
	if n, err := strconv.Atoi(calls); err != nil || n > callers*rounds {
		t.Errorf("%d calls for %d requests, %v", n, 2*callers*rounds, err)
	} else {
		t.Logf("%d calls for %d requests", n, 2*callers*rounds)
	}
}
