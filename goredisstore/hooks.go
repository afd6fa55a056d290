package goredisstore

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// sender sends commands: a go-redis client, or a wrapper that runs hooks or sets timeouts.
type sender interface {
	Process(ctx context.Context, cmd redis.Cmder) error
	Pipeline() redis.Pipeliner
}

// timedClient is a user's client with other timeouts, on the same connections and with the same
// hooks. redis.Client.WithTimeout returns a client without the hooks (go-redis 9.23). So each
// command runs a copy of the user's hooks, and the last hook sends it through the client with the
// timeouts.
type timedClient struct {
	user  *redis.Client
	to    redirectHook // to clients with the timeouts and without hooks
	hooks atomic.Pointer[hooksCopy]
}

// hooksCopy is a copy of a client's hooks. It never uses a connection.
type hooksCopy struct {
	sender
	until time.Time // when it must be copied again
}

// hooksMaxAge bounds the age of copied hooks: the user may have added others since.
const hooksMaxAge = time.Second

func withTimeout(user *redis.Client, timeout time.Duration) sender {
	return printingSender{&timedClient{user: user, to: redirectHook{clone(user, timeout), cloneForPipelines(user, timeout)}}}
}

// clone returns a client with other timeouts, on the same connections, without retries. A command's
// NoRetry is not enough, because it does not apply to a new connection's handshake. go-redis would
// repeat the handshake MaxRetries times, each after a pause, on an ended connection. The options
// belong to the clone alone, which nothing else uses yet.
func clone(user *redis.Client, timeout time.Duration) *redis.Client {
	c := user.WithTimeout(timeout)
	c.Options().MaxRetries = 0
	return c
}

// cloneForPipelines returns a clone where each pipeline uses its own redis.Conn. These share the
// options without a common lock, and go-redis (9.23) changes an option when a server does not
// support maintenance notifications. So this option is off unless the user requires it.
func cloneForPipelines(user *redis.Client, timeout time.Duration) *redis.Client {
	c := clone(user, timeout)
	if notify := c.Options().MaintNotificationsConfig; notify != nil && notify.Mode != maintnotifications.ModeEnabled {
		notify.Mode = maintnotifications.ModeDisabled
	}
	return c
}

// Process implements sender.
func (c *timedClient) Process(ctx context.Context, cmd redis.Cmder) error {
	return c.withHooks().Process(ctx, cmd)
}

// Pipeline implements sender.
func (c *timedClient) Pipeline() redis.Pipeliner { return c.withHooks().Pipeline() }

func (c *timedClient) withHooks() sender {
	now := time.Now()
	if h := c.hooks.Load(); h != nil && now.Before(h.until) {
		return h.sender
	}
	copied := c.user.Conn()
	copied.AddHook(c.to)
	c.hooks.Store(&hooksCopy{copied, now.Add(hooksMaxAge)})
	return copied
}

// redirectHook is the last hook: it sends commands and pipelines through other clients.
type redirectHook struct{ single, pipelines *redis.Client }

// DialHook implements redis.Hook. The user's client makes the connections.
func (redirectHook) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements redis.Hook.
func (r redirectHook) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error { return r.single.Process(ctx, unwrap(cmd)) }
}

// ProcessPipelineHook implements redis.Hook. A pipeline uses the connections for single commands:
// those in go-redis' pool for pipelines would double the number, with half of them idle.
func (r redirectHook) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		conn := r.pipelines.Conn()
		defer conn.Close()
		pipe := conn.Pipeline()
		for _, cmd := range cmds {
			_ = pipe.Process(ctx, unwrap(cmd)) // only queues
		}
		_, err := pipe.Exec(ctx)
		return err
	}
}

// printingSender passes commands to hooks with printable arguments.
type printingSender struct{ sender }

// Process implements sender.
func (s printingSender) Process(ctx context.Context, cmd redis.Cmder) error {
	return s.sender.Process(ctx, toPrintable(cmd))
}

// Pipeline implements sender.
func (s printingSender) Pipeline() redis.Pipeliner { return printingPipeline{s.sender.Pipeline()} }

type printingPipeline struct{ redis.Pipeliner }

// Process implements redis.Pipeliner.
func (p printingPipeline) Process(ctx context.Context, cmd redis.Cmder) error {
	return p.Pipeliner.Process(ctx, toPrintable(cmd))
}

// printable is a command whose Args are strings. A command's own arguments are pointers to strings:
// they cost no allocation, but print as addresses. A printable is as large as a pointer, so
// converting it to an interface does not allocate either.
type printable struct{ command }

func toPrintable(cmd redis.Cmder) redis.Cmder {
	if c, ok := cmd.(command); ok {
		return printable{c}
	}
	return cmd
}

// Args implements redis.Cmder.
func (p printable) Args() []any {
	args := append([]any(nil), p.command.Args()...)
	for i := range args {
		if text, ok := args[i].(*string); ok {
			args[i] = *text
		}
	}
	return args
}

// String implements redis.Cmder.
func (p printable) String() string {
	text := strings.TrimSuffix(fmt.Sprintln(p.Args()...), "\n")
	if err := p.Err(); err != nil {
		return text + ": " + err.Error()
	}
	return text
}

// unwrap returns the command in a printable. Any other Cmder, such as a hook's replacement, is
// returned as it is.
func unwrap(cmd redis.Cmder) redis.Cmder {
	if p, ok := cmd.(printable); ok {
		return p.command
	}
	return cmd
}
