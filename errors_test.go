package dibs_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/memstore"
)

// Messages name the holder, but do not let their readers act as the owner.
func TestMessagesShowNoToken(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		for what, give := range map[string]struct {
			options []dibs.Option
			unlock  bool
		}{
			"plain":      {},
			"label":      {options: []dibs.Option{dibs.Label("payroll")}},
			"a token":    {options: []dibs.Option{dibs.OwnerToken("request-4711")}},
			"short":      {options: []dibs.Option{dibs.OwnerToken("x")}},
			"like ours":  {options: []dibs.Option{dibs.OwnerToken("web-7:1:secretsecretsecret:more")}},
			"nearly so":  {options: []dibs.Option{dibs.OwnerToken("web-7:1:secret:more")}},
			"emoji":      {options: []dibs.Option{dibs.OwnerToken(strings.Repeat("🔒", 20))}},
			"reserved":   {options: []dibs.Option{dibs.MinHold(time.Hour)}, unlock: true},
			"long since": {options: []dibs.Option{dibs.TTL(time.Hour)}},
		} {
			c := open(t, s)
			l := lock(t, c, "n", give.options...)
			if give.unlock {
				wantErr(t, l.Unlock())
			}
			_, busy := open(t, s).Mutex("n").Lock(t.Context(), dibs.Wait(0))
			wantErr(t, busy, dibs.ErrBusy)
			_, second := open(t, s).All([]string{"m", "n"}).TryLock(t.Context())
			wantErr(t, second, dibs.ErrBusy)
			wantErr(t, c.Close())
			for _, text := range []string{busy.Error(), second.Error(), fmt.Sprintf("%v", busy), fmt.Sprint(l.Err())} {
				if strings.Contains(text, string(l.Token())) {
					t.Errorf("%s: the message %q has the token", what, text)
				}
				for _, secret := range strings.FieldsFunc(string(l.Token()), func(r rune) bool { return r == ':' }) {
					if len(secret) >= 12 && strings.Contains(text, secret) {
						t.Errorf("%s: the message %q has %q", what, text, secret)
					}
				}
			}
			if give.unlock {
				time.Sleep(2 * time.Hour)
			}
		}
	})
}

func TestBusyMessage(t *testing.T) {
	const token = "web-7:211:AAAABBBBCCCCDDDD:aaaabbbbccccddddeeeeffff"
	for want, e := range map[string]dibs.BusyError{
		`dibs: acquire "order:42": held by web-7:211 for another 28s`:                       {Holder: token, Remaining: 28 * time.Second},
		`dibs: acquire "order:42": held by web-7:211 for another 28s, 3 ahead in the queue`: {Holder: token, Remaining: 28*time.Second + 7, Ahead: 3},
		`dibs: acquire "order:42": held by web-7:211:backup:db for another 1.5s`:            {Holder: token + ":backup:db", Remaining: 1500 * time.Millisecond},
		`dibs: acquire "order:42": reserved by web-7:211 for another 1m0s`:                  {Holder: token, Reserved: true, Remaining: time.Minute},
		`dibs: acquire "order:42": held by web-7:211, never expires`:                        {Holder: token, NeverExpires: true},
		`dibs: acquire "order:42": held by "\x1b[2J\n\u202e"… for another 1s`:               {Holder: "\x1b[2J\n\u202e" + "0123456", Remaining: time.Second},
		`dibs: acquire "order:42": held by "��"… for another 1s`:                            {Holder: "\xff\xfeab", Remaining: time.Second},
		`dibs: acquire "order:42": held by a value with a single character for another 1s`:  {Holder: "1", Remaining: time.Second},
		`dibs: acquire "order:42": held by "00000000"… for another 1s`:                      {Holder: dibs.Token(strings.Repeat("0", 1<<20)), Remaining: time.Second},
		`dibs: acquire "order:42": held by "web-7:21"… for another 1s`:                      {Holder: "web-7:21\x07:AAAABBBBCCCCDDDD:1", Remaining: time.Second},
		`dibs: acquire "order:42": busy`:                                                    {},
		`dibs: acquire "order:42": context canceled`:                                        {Cause: context.Canceled},
		`dibs: acquire "order:42": busy, 1 ahead in the queue: ` + dibs.ErrClosed.Error():   {Ahead: 1, Cause: dibs.ErrClosed},
	} {
		e.Name = "order:42"
		if have := e.Error(); have != want {
			t.Errorf("message\n%s, want\n%s", have, want)
		}
	}
}

// A message reports the loss and its reason, and nothing more.
func TestLostMessage(t *testing.T) {
	for want, e := range map[string]dibs.LostError{
		`dibs: lease on "n" lost: expired: x`: {Reason: dibs.ReasonExpired, Cause: errors.New("x")},
		`dibs: lease on "n" lost: revoked`:    {Reason: dibs.ReasonRevoked},
		`dibs: lease on "n" lost: the store no longer has it: released elsewhere, expired, deleted, or lost by the store`: {Reason: dibs.ReasonMissing},
	} {
		e.Name = "n"
		if have := e.Error(); have != want {
			t.Errorf("want %s, have %s", want, have)
		}
	}
}
