package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"math"

	"github.com/dibslock/dibs/driver"
)

// Acquire executes an acquire. names are the names as written in the statement.
func (d *Database) Acquire(ctx context.Context, text string, names any, r driver.AcquireRequest) (reply driver.AcquireReply, err error) {
	v := Verb{Op: "acquire", Name: r.Name, Text: text, Until: r.Until}
	err = d.Call(ctx, v, func(until int64) []any {
		return []any{names, d.Text(r.Token), d.Text(r.Client), Micros(r.TTL), r.Weight, r.Limit, r.Queue, int64(r.Ticket), until}
	}, d.ScanReply(&reply))
	return reply, err
}

// Resize executes a resize.
func (d *Database) Resize(ctx context.Context, r driver.AcquireRequest) (reply driver.AcquireReply, err error) {
	v := Verb{Op: "resize", Name: r.Name, Text: d.SQL.Resize, Until: r.Until}
	err = d.Call(ctx, v, func(until int64) []any {
		return []any{d.Name(r.Name), d.Text(r.Token), d.Text(r.Client), Micros(r.TTL), r.Weight, r.Limit, until}
	}, d.ScanReply(&reply))
	return reply, err
}

// ScanReply returns a function to read the row for an acquire or a resize. Without held, the
// request was void.
func (d *Database) ScanReply(reply *driver.AcquireReply) Scan {
	return func(row Row) (at int64, void bool, err error) {
		var held, kept *bool
		var name, holder *string
		var fence, remaining, ticket, place *int64
		if err := row.Scan(&at, &held, &fence, &name, &holder, &kept, &remaining, &ticket, &place); err != nil || held == nil {
			return at, held == nil, err
		}
		*reply = driver.AcquireReply{Held: *held}
		if fence != nil { // a resize without a lease has no fence
			reply.Fence = uint64(*fence)
		}
		if *held {
			return at, false, nil
		}
		reply.Name, reply.Holder, reply.Reserved, reply.Remaining = d.Decode(*name), d.Decode(*holder), *kept, Duration(*remaining)
		if ticket != nil && place != nil {
			reply.Ticket, reply.Position = uint64(*ticket), int(*place)
		}
		return at, false, nil
	}
}

// ReserveFences checks and executes a ReserveFences call of driver.FenceReserver.
func (d *Database) ReserveFences(ctx context.Context, r driver.FenceRequest) (reply driver.FenceReply, err error) {
	if err := driver.CheckFences(r); err != nil {
		return reply, err
	}
	v := Verb{Op: "reserve fences", Name: r.Name, Text: d.SQL.ReserveFences}
	err = d.Call(ctx, v, func(until int64) []any {
		return []any{d.Name(r.Name), d.Text(r.Token), r.Count, int64(r.Least), until}
	}, scanFences(&reply))
	return reply, err
}

// scanFences returns a function to read the row for a ReserveFences. Without held, the request was
// void.
func scanFences(reply *driver.FenceReply) Scan {
	return func(row Row) (at int64, void bool, err error) {
		var held *bool
		var last *int64
		if err := row.Scan(&at, &held, &last); err != nil || held == nil {
			return at, held == nil, err
		}
		if *held {
			*reply = driver.FenceReply{Held: true, Last: uint64(*last)}
		}
		return at, false, nil
	}
}

// Release executes a release. The arguments in more are between the token and the time limit.
func (d *Database) Release(ctx context.Context, text string, r driver.ReleaseRequest, more ...any) (held bool, err error) {
	v := Verb{Op: "release", Name: r.Name, Text: text, Until: r.Until, Urgent: true}
	err = d.Call(ctx, v, func(until int64) []any {
		if r.LastUse {
			until = math.MaxInt64 // a late delivery finds nothing to release
		}
		args := append(make([]any, 0, 5), d.Name(r.Name), d.Text(r.Token))
		return append(append(args, more...), until)
	}, scanFlag(&held))
	return held, err
}

// Cancel executes a cancel.
func (d *Database) Cancel(ctx context.Context, r driver.AcquireRequest) error {
	var done bool
	v := Verb{Op: "cancel", Name: r.Name, Text: d.SQL.Cancel, Until: r.Until, Urgent: true}
	err := d.Call(ctx, v, func(until int64) []any {
		return []any{d.Names(r.Names()), d.Text(r.Token), until}
	}, scanFlag(&done))
	for _, name := range r.Names() {
		d.given.remove(name, r.Token)
	}
	return err
}

// NotifyWanted executes a NotifyWanted call of driver.WantedNotifier.
func (d *Database) NotifyWanted(ctx context.Context, r driver.WantedRequest) (wanted bool, err error) {
	v := Verb{Op: "notify wanted", Name: r.Name, Text: d.SQL.Wanted}
	err = d.Call(ctx, v, func(until int64) []any {
		return []any{d.Name(r.Name), d.Text(r.Token), d.Text(r.Client), until}
	}, scanFlag(&wanted))
	return wanted, err
}

// Revoke checks and executes a revoke.
func (d *Database) Revoke(ctx context.Context, r driver.RevokeRequest) (revoked bool, err error) {
	if err := driver.CheckRevoke(r); err != nil {
		return false, err
	}
	fence := r.Fence
	if fence == 0 {
		if fence, err = d.fenceOf(ctx, r.Name, r.Token); fence == 0 {
			return false, err
		}
	}
	if fence > math.MaxInt64 {
		return false, nil // no database issued it
	}
	v := Verb{Op: "revoke", Name: r.Name, Text: d.SQL.Revoke}
	err = d.Call(ctx, v, func(until int64) []any {
		return []any{d.Name(r.Name), int64(fence), d.Text(r.Reason), until}
	}, scanFlag(&revoked))
	return revoked, err
}

// fenceOf returns the fence of the lease with a token, or of its reservation. It is zero if neither
// exists.
func (d *Database) fenceOf(ctx context.Context, name, token string) (fence uint64, err error) {
	ctx, cancel := context.WithDeadline(ctx, driver.DeadlineOf(ctx))
	defer cancel()
	err = d.One(ctx, false, d.SQL.FenceOf, d.Pair(name, token), &fence)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, nil
	}
	if err != nil {
		return 0, d.Unavailable("revoke", name, err)
	}
	return fence, nil
}

// scanFlag returns a function to read the server's time and a flag, which is null if the request
// was void.
func scanFlag(flag *bool) Scan {
	return func(row Row) (at int64, void bool, err error) {
		var f *bool
		if err := row.Scan(&at, &f); err != nil || f == nil {
			return at, true, err
		}
		*flag = *f
		return at, false, nil
	}
}
