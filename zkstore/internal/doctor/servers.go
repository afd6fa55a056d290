package doctor

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/dibslock/dibs/checkup"
	"github.com/dibslock/dibs/zkstore/internal/greeting"
)

// A server is what a server of the store replied.
type server struct {
	addr     string
	err      error // why it grants no sessions
	readOnly bool
	shortest time.Duration // session timeouts that it grants
	longest  time.Duration
	words    map[string]string // replies to four-letter words, without those that it does not allow
}

// soon is how long a server may take for a reply.
const soon = 3 * time.Second

// visitServers greets all servers.
func (e *examination) visitServers() {
	var visits sync.WaitGroup
	for _, addr := range e.target.Servers {
		s := &server{addr: addr, words: make(map[string]string)}
		e.servers = append(e.servers, s)
		visits.Go(func() { e.visit(s) })
	}
	visits.Wait()
	for _, s := range e.servers {
		if s.replies() {
			e.Visited(nil)
		} else {
			e.Visited(fmt.Errorf("%s: %w", s.addr, s.err))
		}
	}
}

// visit opens sessions with the shortest and the longest timeout, and sends the four-letter words.
func (e *examination) visit(s *server) {
	var session greeting.Session
	session, s.err = e.greet(s.addr, 0)
	s.readOnly, s.shortest = session.ReadOnly, session.Timeout
	if s.err == nil && !s.readOnly {
		session, s.err = e.greet(s.addr, math.MaxInt64)
		s.longest = session.Timeout
	}
	if s.err != nil && !errors.Is(s.err, greeting.ErrSilent) {
		return
	}
	for _, word := range []string{"srvr", "conf", "mntr"} {
		if text, err := e.send(s.addr, word); err == nil && !strings.Contains(text, "not in the whitelist") {
			s.words[word] = text
		}
	}
}

func (e *examination) greet(addr string, timeout time.Duration) (greeting.Session, error) {
	conn, err := e.target.Dial("tcp", addr, soon)
	if err != nil {
		return greeting.Session{}, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(soon)); err != nil {
		return greeting.Session{}, err
	}
	return greeting.Greet(conn, timeout)
}

// send sends a four-letter word.
func (e *examination) send(addr, word string) (string, error) {
	const longest = 1 << 20
	conn, err := e.target.Dial("tcp", addr, soon)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(soon)); err != nil {
		return "", err
	}
	if _, err := conn.Write([]byte(word)); err != nil {
		return "", err
	}
	text, err := io.ReadAll(io.LimitReader(conn, longest))
	return string(text), err
}

// replies reports whether the server replied in any way.
func (s *server) replies() bool { return s.err == nil || errors.Is(s.err, greeting.ErrSilent) }

// serves reports whether a store can use the server.
func (s *server) serves() bool { return s.err == nil && !s.readOnly }

func (e *examination) filter(is func(*server) bool) []*server {
	return slices.DeleteFunc(slices.Clone(e.servers), func(s *server) bool { return !is(s) })
}

func (e *examination) answers() []*server { return e.filter((*server).replies) }

func (e *examination) serving() []*server { return e.filter((*server).serves) }

// field returns the value of a line of a reply, after "name: ", "name=" or "name" and a tab.
func (s *server) field(word, name string) (value string, found bool) {
	for line := range strings.Lines(s.words[word]) {
		line = strings.TrimSpace(line)
		for _, separator := range []string{": ", "=", "\t"} {
			if value, found := strings.CutPrefix(line, name+separator); found {
				return value, true
			}
		}
	}
	return "", false
}

// durationOf returns the value of a setting in milliseconds.
func (s *server) durationOf(name string) (d time.Duration, found bool) {
	text, found := s.field("conf", name)
	n, err := strconv.Atoi(text)
	return time.Duration(n) * time.Millisecond, found && err == nil
}

// at adds findings about a server. Its address is not added if the store has a single server.
func (e *examination) at(server *server, found ...checkup.Findings) {
	s := e.Server
	if len(e.servers) > 1 {
		s.Addr = server.addr
	}
	s.AddAll(found...)
}

// checkServers checks each server.
func (e *examination) checkServers() {
	some := len(e.serving()) > 0
	for _, s := range e.servers {
		e.at(s,
			checkup.If(!s.replies(), checkup.Warning, "unreachable", fmt.Sprintf("the server does not reply: %v", s.err),
				"if others fail too, nothing can be locked", "start it, or remove it from the store's servers"),
			checkup.If(s.readOnly && some, checkup.Warning, "read-only", "the server is read-only: it reaches no majority of servers, but others do",
				"clients lose time until they try another server", "check the network between this server and the others"),
			checkup.If(s.replies() && s.err != nil && some, checkup.Warning, "leader", fmt.Sprintf("others serve clients, but %v", s.err),
				"clients lose time until they try another server", "check the network between this server and the others"),
		)
		if s.replies() {
			e.checkVersion(s)
		}
	}
}

// checkLeader reports that no server serves clients.
func (e *examination) checkLeader() {
	e.unusable = len(e.serving()) == 0
	e.AddAll(checkup.If(e.unusable, checkup.Critical, "leader", fmt.Sprintf("no server serves clients: %v", e.idle()), noLocks,
		"start the other servers, and check the network between them"))
}

// idle says why a server does not serve clients.
func (e *examination) idle() error {
	for _, s := range e.answers() {
		if s.err != nil {
			return s.err
		}
	}
	return errors.New("those that reply are read-only, because they reach no majority of servers")
}

// checkWords reports four-letter words that the servers do not allow.
func (e *examination) checkWords() {
	for _, s := range e.serving() {
		var missing []string
		for _, word := range []string{"srvr", "conf", "mntr"} {
			if s.words[word] == "" {
				missing = append(missing, word)
			}
		}
		e.at(s, checkup.If(len(missing) > 0, checkup.Unchecked, "words",
			fmt.Sprintf("the server does not allow the four-letter words %s", strings.Join(missing, ", ")),
			"not checked: "+unchecked(missing), "4lw.commands.whitelist=srvr,conf,mntr in zoo.cfg of each server"))
	}
}

// unchecked lists what the four-letter words are for.
func unchecked(words []string) string {
	var all []string
	for _, word := range words {
		all = append(all, map[string]string{"srvr": "the version", "conf": "whether a session timeout is shorter than two ticks", "mntr": "whether followers are in sync"}[word])
	}
	return strings.Join(all, "; ")
}
