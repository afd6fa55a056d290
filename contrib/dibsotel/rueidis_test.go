package dibsotel_test

import (
	"context"
	"testing"

	"github.com/redis/rueidis"
	"go.opentelemetry.io/otel/trace"
)

// A tracedClient makes a span for each call, as the client of rueidisotel does. The tests do
// not use that one, because its module does not always compile with the current rueidis.
type tracedClient struct {
	rueidis.Client
	tracer trace.Tracer
}

func openRueidis(t *testing.T, addr string, r *recorder) rueidis.Client {
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return &tracedClient{client, r.provider.Tracer("github.com/redis/rueidis")}
}

func (c *tracedClient) start(ctx context.Context, name string) (context.Context, trace.Span) {
	return c.tracer.Start(ctx, name, trace.WithSpanKind(trace.SpanKindClient))
}

func (c *tracedClient) Do(ctx context.Context, cmd rueidis.Completed) rueidis.RedisResult {
	ctx, span := c.start(ctx, cmd.Commands()[0])
	defer span.End()
	return c.Client.Do(ctx, cmd)
}

func (c *tracedClient) DoMulti(ctx context.Context, cmds ...rueidis.Completed) []rueidis.RedisResult {
	ctx, span := c.start(ctx, cmds[0].Commands()[0])
	defer span.End()
	return c.Client.DoMulti(ctx, cmds...)
}

func (c *tracedClient) Nodes() map[string]rueidis.Client {
	nodes := c.Client.Nodes()
	for addr, node := range nodes {
		nodes[addr] = &tracedClient{node, c.tracer}
	}
	return nodes
}
