package zkstore

import (
	"time"

	"github.com/go-zookeeper/zk"
)

// An Option configures a Store made by New. The zero value changes nothing.
type Option struct{ apply func(*config) }

// A config is what the options set.
type config struct {
	prefix string
	acl    []zk.ACL
	auth   []login
	dial   zk.Dialer
	format NodeFormat
	tick   time.Duration
}

// A login is sent to a server for each new connection.
type login struct {
	scheme      string
	credentials []byte
}

// Prefix sets the path of the znode with all locks. The default is "/locks". It can begin with a
// chroot. Missing znodes are created. The lock of a name is the znode PREFIX/NAME, as in Curator's
// new InterProcessMutex(client, "/locks/NAME").
func Prefix(path string) Option { return Option{func(c *config) { c.prefix = path }} }

// Auth logs each connection in, as in Auth("digest", []byte("user:password")). Without the option
// ACL, only this user can then use the znodes of the store.
func Auth(scheme string, credentials []byte) Option {
	return Option{func(c *config) { c.auth = append(c.auth, login{scheme, credentials}) }}
}

// ACL sets the rights of new znodes. By default, everybody can use them or, with Auth, only the
// creator.
func ACL(acl ...zk.ACL) Option { return Option{func(c *config) { c.acl = acl }} }

// Dial sets the function that opens connections, for TLS or a proxy. The default is net.DialTimeout.
func Dial(dial zk.Dialer) Option { return Option{func(c *config) { c.dial = dial }} }

// A NodeFormat is how the znodes in a wait queue are named. All programs that lock a name should
// use the same format: others ignore each other.
type NodeFormat int

const (
	// Curator is the format of InterProcessMutex, of InterProcessReadWriteLock, and of the Lock of
	// github.com/go-zookeeper/zk. It is the default. On one name, all programs should use the same
	// kind of lock: Curator's mutexes and readers ignore each other.
	Curator NodeFormat = iota
	// Kazoo is the format of kazoo's Lock, ReadLock and WriteLock.
	Kazoo
)

// Format sets the format of the znodes.
func Format(f NodeFormat) Option { return Option{func(c *config) { c.format = f }} }

// Tick sets the tickTime of the servers. By default, it is half of their shortest session timeout.
// Set it if the servers have a setting minSessionTimeout below two ticks. Set its double if there are
// observers that follow another server than the leader (observerMasterPort).
func Tick(d time.Duration) Option { return Option{func(c *config) { c.tick = d }} }
