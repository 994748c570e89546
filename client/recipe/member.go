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
)

// record is the contents of a file that stands for a participant: what it has to say, and whose file it
// is, for the cell does not tell who has an ephemeral file open. It is JSON, for people and scripts.
type record struct {
	Session string `json:"session"` // api.SessionID.String
	Host    string `json:"host,omitempty"`
	PID     int    `json:"pid,omitempty"`
	Value   string `json:"value,omitempty"`
	Data    []byte `json:"data,omitempty"` // the value, if it is not text

	// Of candidates only.
	Priority int    `json:"priority,omitempty"`
	Chosen   *mark  `json:"chosen,omitempty"`
	Elected  uint64 `json:"elected,omitempty"` // the token it is, or was, the primary with
}

// sign returns a record of this session of this process.
func sign(c *client.Client) record {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown" // as the session itself has it
	}
	return record{Session: c.Session().String(), Host: host, PID: os.Getpid()}
}

// with returns the record with another value.
func (r record) with(value []byte) record {
	r.Value, r.Data = string(value), nil
	if !utf8.Valid(value) {
		r.Value, r.Data = "", value
	}
	return r
}

// value returns what the participant has to say.
func (r record) value() []byte {
	if len(r.Data) > 0 {
		return r.Data
	}
	return []byte(r.Value)
}

// session returns whose record it is, 0 if that is not to be read.
func (r record) session() api.SessionID {
	id, err := api.ParseSessionID(r.Session)
	if err != nil {
		return 0
	}
	return id
}

// text returns what the file holds. No value makes it fail: a record is strings and numbers.
func (r record) text() []byte {
	text, _ := json.Marshal(r)
	return text
}

// parseRecord reads contents. Those that no recipe has written are a value, of an unknown session.
func parseRecord(contents []byte) record {
	var r record
	if json.Unmarshal(contents, &r) == nil && r.session() != 0 {
		return r
	}
	return record{}.with(contents)
}

// Member is one who is up.
type Member struct {
	Name    string // of its file
	Value   []byte
	Session api.SessionID // 0 if its file was not made by this package
	Host    string
	PID     int
}

// entry is a file of a directory, as it was read.
type entry struct {
	name              string
	record            record
	instance, content api.Generation
	ephemeral         bool
}

func (e *entry) member() Member {
	return Member{Name: e.name, Value: bytes.Clone(e.record.value()), Session: e.record.session(), Host: e.record.Host, PID: e.record.PID}
}

// roster is what was read of the files of a directory: at another look only those that have changed are
// read again. Its methods may be called from several goroutines.
type roster struct {
	c   *client.Client
	dir string

	mu    sync.Mutex // guards known
	known map[string]*entry
}

func newRoster(c *client.Client, dir string) *roster {
	return &roster{c: c, dir: dir, known: map[string]*entry{}}
}

// look lists the files, by name, through a handle of the directory. The errors are those of reading; a
// file that goes meanwhile is left out, and so is one that is being removed, or that may not be read: a
// stranger's file is to hold up nobody.
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

// entry returns what is known of a file, or reads it; nil if it is not there any more, or not to be read.
func (r *roster) entry(ctx context.Context, dir *client.Handle, stat api.Stat) (*entry, error) {
	name := stat.Path.Base()
	r.mu.Lock()
	e := r.known[name]
	r.mu.Unlock()
	if e != nil && e.instance == stat.Instance && e.content == stat.Content {
		return e, nil
	}
	// Who has an ephemeral file open keeps it from going: so it is closed at once.
	h, err := dir.Open(ctx, name, client.OpenOptions{Read: true, Kind: api.File})
	if err == nil {
		defer leave(ctx, h)
		var text []byte
		if text, stat, err = h.Contents(ctx); err == nil {
			return &entry{name: name, record: parseRecord(text), instance: stat.Instance, content: stat.Content, ephemeral: stat.Ephemeral}, nil
		}
	}
	if unusable(err) {
		return nil, dirGone(ctx, dir)
	}
	return nil, err
}

// dirGone tells a file that is gone from a directory that is: only the latter is an error.
func dirGone(ctx context.Context, dir *client.Handle) error {
	_, err := dir.Stat(ctx)
	return err
}

// keep forgets what is not on the list.
func (r *roster) keep(list []*entry) {
	known := map[string]*entry{}
	for _, e := range list {
		known[e.name] = e
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.known = known
}

// once opens the directory for one look at it.
func (r *roster) once(ctx context.Context) ([]*entry, error) {
	for {
		h, err := r.c.Open(ctx, r.dir, client.OpenOptions{Read: true, Kind: api.Directory})
		if err != nil {
			return nil, err
		}
		list, err := r.look(ctx, h)
		leave(ctx, h)
		if !errors.Is(err, api.HandleClosed) {
			return list, err
		}
		// The directory has been deleted meanwhile: the next Open says so, or finds another.
	}
}

// childEvents are those of a directory whose files, and what is in them, matter.
func childEvents() []api.EventKind {
	return []api.EventKind{api.EventChildAdded, api.EventChildRemoved, api.EventChildModified}
}

// follow ranges over the looks at the directory, the first at once, one after each change. It need not
// be there; an absent one is empty.
func (r *roster) follow(ctx context.Context) iter.Seq2[[]*entry, error] {
	return func(yield func([]*entry, error) bool) {
		for s, err := range follow(ctx, r.c, r.dir, client.OpenOptions{Read: true, Kind: api.Directory, Events: childEvents()}) {
			var list []*entry
			if err == nil && s.Handle != nil {
				if list, err = r.look(ctx, s.Handle); errors.Is(err, api.HandleClosed) {
					continue // it comes as another sight
				}
			}
			if !yield(list, ended(ctx, err, "follow", r.dir)) || err != nil {
				return
			}
		}
	}
}

// Members lists who is up, by name: the ephemeral files of a directory, of Announce or of anybody else
// (chubbyctl put --ephemeral), but for those that may not be read. NotFound says that there is no such
// directory. One who died is a member until its session has ended, at the latest a lease and two seconds later, and nobody
// has its file open.
//
// It costs a call for the listing, and three for each member, two of which go to the log. The value of a
// member is read through a handle of its file, which lives on until that is closed, even if the member
// dies in the moment.
func Members(ctx context.Context, c *client.Client, dir string) ([]Member, error) {
	list, err := newRoster(c, dir).once(ctx)
	if err != nil {
		return nil, ended(ctx, err, "list members", dir)
	}
	return membersOf(list), nil
}

// WatchMembers ranges over the whole sets of members, as Members lists them: the first at once, and then
// one whenever it has changed. Changes that come together are one. A directory that is not there has no
// members, and is waited for. What comes last is the error that ended it: of ctx, of the session, or an
// answer such as PermissionDenied.
//
// A member whose value changes, or who is new, costs three calls; the others none. In a session without a
// cache the directory costs one once in a lease, and so does, everywhere, each file that may not be read.
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
			if !yield(now, err) || err != nil {
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

// announced returns the entries of those who take part: a permanent file is nobody's.
func announced(list []*entry) []*entry {
	return slices.DeleteFunc(slices.Clone(list), func(e *entry) bool { return !e.ephemeral })
}

func (m Member) equal(o Member) bool {
	return m.Name == o.Name && m.Session == o.Session && m.Host == o.Host && m.PID == o.PID && bytes.Equal(m.Value, o.Value)
}
