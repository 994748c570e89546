package recipe

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"iter"
	"os"
	"slices"
	"sync"
	"unicode/utf8"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/internal/hold"
)

// record is the contents of a participant's file: its value and its session, which the cell does not tell. It
// is JSON, for people and scripts.
type record struct {
	Session string `json:"session"` // api.SessionID.String
	Host    string `json:"host,omitempty"`
	PID     int    `json:"pid,omitempty"`
	Value   string `json:"value,omitempty"`
	Data    []byte `json:"data,omitempty"` // a value that is not text

	// Of candidates only.
	Priority int    `json:"priority,omitempty"`
	Chosen   mark   `json:"chosen,omitzero"`
	Elected  uint64 `json:"elected,omitempty"` // the token of its reign, present or past
}

func sign(c *client.Client) record {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown" // as the session has it
	}
	return record{Session: c.Session().String(), Host: host, PID: os.Getpid()}
}

func (r record) with(value []byte) record {
	r.Value, r.Data = string(value), nil
	if !utf8.Valid(value) {
		r.Value, r.Data = "", value
	}
	return r
}

func (r record) value() []byte {
	if len(r.Data) > 0 {
		return r.Data
	}
	return []byte(r.Value)
}

// session returns the record's session, 0 if it cannot be parsed.
func (r record) session() api.SessionID {
	id, _ := api.ParseSessionID(r.Session)
	return id
}

// text returns the file's contents. Any value succeeds: a record is strings and numbers.
func (r record) text() []byte {
	text, _ := json.Marshal(r)
	return text
}

// parseRecord reads contents. Contents from outside this package are a value, of an unknown session.
func parseRecord(contents []byte) record {
	var r record
	if json.Unmarshal(contents, &r) == nil && r.session() != 0 {
		return r
	}
	return record{}.with(contents)
}

// Member is a participant that is up.
type Member struct {
	Name    string // of its file
	Value   []byte
	Session api.SessionID // 0 if its file is not of this package
	Host    string
	PID     int
}

type entry struct {
	name              string
	record            record
	instance, content api.Generation
	ephemeral         bool
	over              bool // its session is known to have ended, as a reader may keep its file; roster.mu guards it
}

func (e *entry) member() Member {
	return Member{Name: e.name, Value: bytes.Clone(e.record.value()), Session: e.record.session(), Host: e.record.Host, PID: e.record.PID}
}

// roster caches the files of a directory: another look reads only changed ones. Its methods may be called
// from several goroutines.
type roster struct {
	c   *client.Client
	dir string

	mu    sync.Mutex // guards known
	known map[string]*entry
}

func newRoster(c *client.Client, dir string) *roster {
	return &roster{c: c, dir: dir, known: map[string]*entry{}}
}

// look lists the files, by name, through a handle of the directory. The errors are those of reading. It
// leaves out files that are gone, being removed, or unreadable: another program's file must block no caller.
func (r *roster) look(ctx context.Context, dir *client.Handle) ([]*entry, error) {
	stats, err := dir.ReadDir(ctx)
	if err != nil {
		return nil, err
	}
	var list []*entry
	for _, stat := range stats {
		if stat.Kind != api.File {
			continue
		}
		e, err := r.entry(ctx, dir, stat)
		if err != nil {
			return nil, err
		}
		if e != nil {
			list = append(list, e)
		}
	}
	r.keep(list)
	return list, nil
}

// entry returns a known file, or reads it; nil if it is absent or unreadable.
func (r *roster) entry(ctx context.Context, dir *client.Handle, stat api.Stat) (*entry, error) {
	name := stat.Path.Base()
	r.mu.Lock()
	e := r.known[name]
	r.mu.Unlock()
	if e != nil && e.instance == stat.Instance && e.content == stat.Content {
		return e, nil
	}
	// Closed at once: an open handle keeps an ephemeral file alive.
	h, err := dir.Open(ctx, name, client.OpenOptions{Read: true, Kind: api.File})
	if err == nil {
		defer hold.Leave(ctx, h)
		var text []byte
		if text, stat, err = h.Contents(ctx); err == nil {
			return &entry{name: name, record: parseRecord(text), instance: stat.Instance, content: stat.Content, ephemeral: stat.Ephemeral}, nil
		}
	}
	if hold.Unusable(err) {
		_, err = dir.Stat(ctx) // of an absent directory it is an error
	}
	return nil, err
}

func (r *roster) keep(list []*entry) {
	known := map[string]*entry{}
	for _, e := range list {
		known[e.name] = e
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.known = known
}

// isOver asks the cell whether the session of an entry has ended. No session reuses a number.
func (r *roster) isOver(ctx context.Context, e *entry) (bool, error) {
	if r.knowsOver(e) {
		return true, nil
	}
	_, found, err := r.c.Cell().FindSession(ctx, e.record.session())
	if err != nil || found {
		return false, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	e.over = true
	return true, nil
}

func (r *roster) knowsOver(e *entry) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return e.over
}

func (r *roster) once(ctx context.Context) ([]*entry, error) {
	for {
		h, err := r.c.Open(ctx, r.dir, client.OpenOptions{Read: true, Kind: api.Directory})
		if err != nil {
			return nil, err
		}
		list, err := r.look(ctx, h)
		hold.Leave(ctx, h)
		if !errors.Is(err, api.HandleClosed) {
			return list, err
		}
		// The directory was deleted meanwhile: the next Open says so, or finds another.
	}
}

// follow ranges over the looks at the directory: at once, then after each change. An absent one is empty.
func (r *roster) follow(ctx context.Context) iter.Seq2[[]*entry, error] {
	return looks(ctx, r.c, r.dir, listing(), func(s sight) ([]*entry, error) {
		if s.Handle == nil {
			return nil, nil
		}
		return r.look(ctx, s.Handle)
	})
}

// Members lists the members, by name: the readable ephemeral files of a directory, of Announce or of other
// programs (chubbyctl put --ephemeral). NotFound says that the directory is absent. A dead member stays until
// its session has ended, at most a lease and two seconds later, and its file is open nowhere.
//
// It costs a call for the listing, and three for each member, two of which go to the log. While it reads a
// value, the file is open, and outlives a member that just died.
func Members(ctx context.Context, c *client.Client, dir string) ([]Member, error) {
	list, err := newRoster(c, dir).once(ctx)
	if err != nil {
		return nil, hold.Ended(ctx, err, "list members", dir)
	}
	return membersOf(list), nil
}

// WatchMembers ranges over whole sets of members, as Members lists them: the first at once, then one after
// each change, or several together. An absent directory has no members, and is waited for. The last item is
// the final error: of ctx, of the session, or an answer such as PermissionDenied.
//
// A new or changed member costs three calls; the others none. In each lease, an unreadable file costs one
// call, and so does the directory in a session without a cache.
func WatchMembers(ctx context.Context, c *client.Client, dir string) iter.Seq2[[]Member, error] {
	return func(yield func([]Member, error) bool) {
		var before []Member
		first := true
		for list, err := range newRoster(c, dir).follow(ctx) {
			now := membersOf(list)
			if err == nil && !first && slices.EqualFunc(before, now, Member.equal) {
				continue
			}
			before, first = slices.Clone(now), false
			if !yield(now, hold.Ended(ctx, err, "follow", dir)) {
				return
			}
		}
	}
}

func membersOf(list []*entry) []Member {
	var members []Member
	for _, e := range announced(list) {
		members = append(members, e.member())
	}
	return members
}

// announced returns the entries of participants: a permanent file is no participant's.
func announced(list []*entry) []*entry {
	return slices.DeleteFunc(slices.Clone(list), func(e *entry) bool { return !e.ephemeral })
}

func (m Member) equal(o Member) bool {
	return m.Name == o.Name && m.Session == o.Session && m.Host == o.Host && m.PID == o.PID && bytes.Equal(m.Value, o.Value)
}
