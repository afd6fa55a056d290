package listen

// state is what the server knows of a channel of a connection. At most one command for
// a channel is without a reply, so the last reply is the truth.
type state int

const (
	absent state = iota
	subscribing
	subscribed
	unsubscribing
)

// channel is a channel of a connection, with the calls that listen on it.
type channel struct {
	name   string
	state  state
	queued bool // in connection.changed
	kept   bool // the server refuses to unsubscribe it
	calls  []*call
}

// stale reports whether the server must be sent a command: the calls need a
// subscription that there is not, or there is one that no call needs. During a command
// the answer is no; the reply decides what follows. So commands for one channel are in
// the order in which its calls come and go.
func (ch *channel) stale() bool {
	needed := len(ch.calls) > 0
	return needed && ch.state == absent || !needed && ch.state == subscribed && !ch.kept
}

// start returns the command for a stale channel, and assumes that it is sent.
func (ch *channel) start() Op {
	if ch.state == absent {
		ch.state = subscribing
		return Op{Channel: ch.name, Subscribe: true}
	}
	ch.state = unsubscribing
	return Op{Channel: ch.name}
}

// deliver passes a message to each call.
func (ch *channel) deliver(message string) {
	for _, c := range ch.calls {
		c.deliver(message)
	}
}

// fail ends each call.
func (ch *channel) fail(err error) {
	for _, c := range ch.calls {
		c.fail(err)
	}
	ch.calls = nil
}

// call is a call of Listen.
type call struct {
	connection *connection
	channel    *channel
	index      int           // in channel.calls
	ready      chan struct{} // holds a value if there is a message or an error
	messages   []string
	err        error // why the server or the connection has ended the call
}

func (c *call) deliver(message string) {
	c.messages = append(c.messages, message)
	signal(c.ready)
}

func (c *call) fail(err error) {
	c.err = err
	signal(c.ready)
}

// signal puts a value into a channel with room for one, unless there is one.
func signal(ready chan struct{}) {
	select {
	case ready <- struct{}{}:
	default:
	}
}
