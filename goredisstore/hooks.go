package goredisstore

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// A sender is a client of go-redis, or something through whose hooks commands go.
type sender interface {
	Process(ctx context.Context, cmd redis.Cmder) error
	Pipeline() redis.Pipeliner
}

// A bounded is a user's client with other timeouts, on the same connections and with
// the same hooks. What WithTimeout returns has none of the hooks (go-redis 9.23). So
// each command goes through a copy of the user's hooks, and the last one sends it by
// the client that has the timeouts.
type bounded struct {
	user *redis.Client
	by   *redis.Client // without hooks
	path atomic.Pointer[path]
}

// A path is a copy of a client's hooks. It never takes a connection.
type path struct {
	sender
	until time.Time
}

// fresh is how long copied hooks count: others may have been added since.
const fresh = time.Second

func bind(user *redis.Client, timeout time.Duration) sender {
	return shown{&bounded{user: user, by: clone(user, timeout)}}
}

// clone returns a client with other timeouts on the same connections, which makes no
// second try of its own. That a command is not to be sent again does not reach the
// handshake on a new connection: go-redis would go on with it on a connection that has
// ended, MaxRetries times with a pause before each. The options are the clone's own
// copy, which nobody else has seen yet.
func clone(user *redis.Client, timeout time.Duration) *redis.Client {
	c := user.WithTimeout(timeout)
	c.Options().MaxRetries = 0
	return c
}

// Process implements sender.
func (b *bounded) Process(ctx context.Context, cmd redis.Cmder) error {
	return b.hooks().Process(ctx, cmd)
}

// Pipeline implements sender.
func (b *bounded) Pipeline() redis.Pipeliner { return b.hooks().Pipeline() }

func (b *bounded) hooks() sender {
	now := time.Now()
	if p := b.path.Load(); p != nil && now.Before(p.until) {
		return p.sender
	}
	copied := b.user.Conn()
	copied.AddHook(detour{b.by})
	b.path.Store(&path{copied, now.Add(fresh)})
	return copied
}

// A detour is the last hook: it sends by another client.
type detour struct{ by *redis.Client }

// DialHook implements redis.Hook. The user's client makes the connections.
func (detour) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements redis.Hook.
func (d detour) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error { return d.by.Process(ctx, bare(cmd)) }
}

// ProcessPipelineHook implements redis.Hook.
func (d detour) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		pipe := d.by.Pipeline()
		for _, cmd := range cmds {
			_ = pipe.Process(ctx, bare(cmd)) // only queues
		}
		_, err := pipe.Exec(ctx)
		return err
	}
}

// shown shows commands to hooks with arguments that they can print.
type shown struct{ sender }

// Process implements sender.
func (s shown) Process(ctx context.Context, cmd redis.Cmder) error {
	return s.sender.Process(ctx, show(cmd))
}

// Pipeline implements sender.
func (s shown) Pipeline() redis.Pipeliner { return shownPipeline{s.sender.Pipeline()} }

type shownPipeline struct{ redis.Pipeliner }

// Process implements redis.Pipeliner.
func (p shownPipeline) Process(ctx context.Context, cmd redis.Cmder) error {
	return p.Pipeliner.Process(ctx, show(cmd))
}

// legible is a command whose arguments are strings. Those of the command itself are
// pointers to strings, which cost no allocation, and which print as addresses.
type legible struct{ once } // as large as a pointer: to pass it costs no allocation, either

func show(cmd redis.Cmder) redis.Cmder {
	if c, ok := cmd.(once); ok {
		return legible{c}
	}
	return cmd
}

// Args implements redis.Cmder.
func (l legible) Args() []any {
	args := append([]any(nil), l.once.Args()...)
	for i := range args {
		if text, ok := args[i].(*string); ok {
			args[i] = *text
		}
	}
	return args
}

// String implements redis.Cmder.
func (l legible) String() string {
	text := strings.TrimSuffix(fmt.Sprintln(l.Args()...), "\n")
	if err := l.Err(); err != nil {
		return text + ": " + err.Error()
	}
	return text
}

// bare returns the command itself, or what a hook has put in its place.
func bare(cmd redis.Cmder) redis.Cmder {
	if l, ok := cmd.(legible); ok {
		return l.once
	}
	return cmd
}
