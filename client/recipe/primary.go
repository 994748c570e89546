package recipe

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"iter"
	"maps"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/internal/hold"
)

// Primary is the winner of an election. Its methods may be called from several goroutines. Resign or
// HandOver, also after it has lost: that says that its work has stopped (client.Lock.Release).
type Primary struct {
	*campaign // that it has won
	lock      *client.Lock
	rank      rank

	ask   sync.Once
	asked chan struct{}      // closed when a candidate ranks before it
	stop  context.CancelFunc // ends attend
	done  chan struct{}      // closed when attend has ended
	end   hold.Ending        // gives up the lock
}

func (k *campaign) reign(l *client.Lock) *Primary {
	p := &Primary{campaign: k, lock: l, rank: rank{priority: k.options.Priority}, asked: make(chan struct{}), done: make(chan struct{})}
	if k.chosen {
		p.rank.chosen.Token = l.Token() - 1 // before all later choices
	}
	ctx, cancel := context.WithCancel(l.Context())
	p.stop = cancel
	go p.attend(ctx)
	return p
}

// Context is that of the primary's work: the lock's (client.Lock.Context). It ends before another can be the
// primary, and when this one resigns.
func (p *Primary) Context() context.Context { return p.lock.Context() }

// Done is closed when Context ends.
func (p *Primary) Done() <-chan struct{} { return p.Context().Done() }

// Err checks the clock, and returns why this is no longer the primary, or nil.
func (p *Primary) Err() error { return p.lock.Err() }

// Path returns the path of the election's file.
func (p *Primary) Path() string { return p.path }

// Lock returns the lock that makes it the primary. Send its sequencer with every request to servers that
// serve only the primary; its token is the Reign's. Resign releases it.
func (p *Primary) Lock() *client.Lock { return p.lock }

// Name returns the name of the candidate.
func (p *Primary) Name() string { return p.options.Name }

// SetValue replaces the value, if this is the primary at the moment of the write. Otherwise it writes nothing
// and returns BadSequencer or LockLost. After SessionExpired it may have written, as the answer may be lost.
func (p *Primary) SetValue(ctx context.Context, value []byte) error {
	if err := p.lock.Err(); err != nil {
		return err
	}
	_, err := p.file.SetContents(ctx, value, client.IfSequencer(p.lock.Sequencer()))
	return hold.Ended(ctx, err, "set the value of", p.path)
}

// Asked is closed when a candidate waits that ranks before the primary: one chosen in this reign (Nominate),
// or, unless this primary was chosen, one of higher priority. A primary that can be replaced without harm
// then stops its work and calls Resign; it need not.
func (p *Primary) Asked() <-chan struct{} { return p.asked }

// Resign ends the context, then gives up the lock: stop the work before. Nil means that this is no longer the
// primary, whether it resigned or had lost. After an error, of ctx or Uncertain, the cell may still see
// it as the primary, until the background release; another call waits for that. The value remains in the
// file.
func (p *Primary) Resign(ctx context.Context) error {
	p.stop()
	ctx, cancel := p.c.CleanupContext(ctx)
	defer cancel()
	err := p.end.Run(ctx, p.c, "resign from", p.path, func(ctx context.Context) error {
		faults := []error{p.lock.Release(ctx), p.presence.Withdraw(ctx), p.file.Close(ctx)} // the lock first: others wait for it
		<-p.done
		return errors.Join(slices.DeleteFunc(faults, over)...)
	})
	<-p.Done() // the release has begun, and ends it
	return hold.Ended(ctx, err, "resign from", p.path)
}

// over reports whether a lock needs no release because it is gone, or a registration no removal because
// another holds its file's lock (LockHeld).
func over(err error) bool {
	return hold.Gone(err) || errors.Is(err, api.LockLost) || errors.Is(err, api.LockHeld) || errors.Is(err, api.NotHeld) || errors.Is(err, api.SessionExpired)
}

// HandOver resigns so that the candidate of that name is the next primary, before all others. Without such a
// candidate it returns NotFound and changes nothing. If the candidate dies before it has the lock, the next
// in rank follows, once the cell has noticed. After another error, call HandOver again, or Resign.
func (p *Primary) HandOver(ctx context.Context, name string) error {
	if err := Nominate(ctx, p.c, p.path, name); err != nil {
		return err
	}
	return p.Resign(ctx)
}

// attend shows the primary, and checks whether a candidate ranks before it. It ends with the lock's context.
func (p *Primary) attend(ctx context.Context) {
	defer close(p.done)
	p.presence.mu.Lock()
	mine := p.presence.record
	p.presence.mu.Unlock()
	mine.Elected = p.lock.Token()
	_ = p.presence.rewrite(ctx, mine) // for people; the lock remains even if the announcement has ended
	for list, err := range p.roster.follow(ctx) {
		if err != nil {
			return
		}
		asked := false
		for _, e := range announced(list) {
			switch {
			case e.name == p.options.Name || e.record.Elected != 0 || e.record.session() == 0:
			case e.record.Chosen != mark{} && e.record.Chosen.Token < p.lock.Token():
				// The mark was for a past reign. If this fails, the candidate ranks too high.
				_ = remark(ctx, p.c, p.roster.dir, e, mark{})
			default:
				asked = asked || e.record.rank().compare(p.rank) > 0 && p.lives(ctx, e)
			}
		}
		if asked {
			p.ask.Do(func() { close(p.asked) })
		}
	}
}

// lives reports whether a candidate's session is not known to have ended. Without an answer it counts as
// alive.
func (p *Primary) lives(ctx context.Context, e *entry) bool {
	over, err := p.roster.isOver(ctx, e)
	return err != nil || !over
}

// Endpoint is where a service can be reached.
type Endpoint struct {
	Address  string            `json:"address"`            // host:port, most often
	Weight   int               `json:"weight,omitempty"`   // share of the work, for callers that divide it; 0 if unstated
	Metadata map[string]string `json:"metadata,omitempty"` // a version, a zone
}

// Equal reports whether two endpoints are the same.
func (e Endpoint) Equal(o Endpoint) bool {
	return e.Address == o.Address && e.Weight == o.Weight && maps.Equal(e.Metadata, o.Metadata)
}

// text returns the endpoint in its published form. Any value succeeds.
func (e Endpoint) text() []byte {
	if e.Weight == 0 && len(e.Metadata) == 0 {
		return []byte(e.Address)
	}
	text, _ := json.Marshal(e)
	return text
}

// isHostPort reports whether a text looks like host:port.
func isHostPort(text string) bool {
	host, port, err := net.SplitHostPort(text)
	if err != nil || host == "" || strings.ContainsFunc(host, unicode.IsSpace) {
		return false
	}
	n, err := strconv.ParseUint(port, 10, 16)
	return err == nil && n > 0
}

// parseEndpoint reads a published address, or JSON of an Endpoint. JSON without an address is no endpoint.
func parseEndpoint(text []byte) (e Endpoint, ok bool) {
	text = bytes.TrimSpace(text)
	if bytes.HasPrefix(text, []byte("{")) {
		if json.Unmarshal(text, &e) != nil {
			return Endpoint{}, false
		}
		return e, e.Address != ""
	}
	return Endpoint{Address: string(text)}, len(text) > 0
}

// Publication is a published endpoint. Its methods may be called from several goroutines, but one Update at a
// time. Withdraw it, also after it has ended.
type Publication struct{ *presence }

// Publish adds an endpoint to a service, the directory path, while the session lasts: by Announce, under its
// address as the name, with WaitForName, as an earlier publisher of the address is taken for the same server
// before a crash. Absent directories are as in Announce. Withdraw an endpoint before the server stops, so
// that clients no longer call it. After a crash it goes at most a lease and two seconds later.
func Publish(ctx context.Context, c *client.Client, path string, e Endpoint, options ...AnnounceOption) (*Publication, error) {
	if strings.TrimSpace(e.Address) == "" {
		return nil, &api.Error{Code: api.InvalidArgument, Op: "publish", Path: path, Message: "the endpoint has no address"}
	}
	o := announceOptions{}
	for _, option := range options {
		option(&o)
	}
	o.wait = true
	p, err := announce(ctx, c, path, url.PathEscape(e.Address), sign(c).with(e.text()), o)
	if err != nil {
		return nil, hold.Ended(ctx, err, "publish", path)
	}
	return &Publication{p}, nil
}

// Update changes the weight and the metadata. For another address, publish another endpoint.
func (p *Publication) Update(ctx context.Context, weight int, metadata map[string]string) error {
	p.mu.Lock()
	e, _ := parseEndpoint(p.record.value())
	p.mu.Unlock()
	e.Weight, e.Metadata = weight, metadata
	return p.update(ctx, e.text())
}

// Lookup returns the endpoints of a service, by address. A service is a directory with a file for each, of
// Publish or any other that holds host:port or JSON of an Endpoint, permanent or not; or one file with the
// one address, as an election has (Campaign, chubbyctl elect). That file keeps a past primary's address until
// the next (Observe reports it): so keep elections and endpoints in different directories. Other files and
// unreadable ones are no endpoints. NotFound says that the node is absent.
//
// It costs two calls, and three for each endpoint of a directory, two of which go to the log: for frequent
// lookups, use WatchEndpoints.
func Lookup(ctx context.Context, c *client.Client, path string) ([]Endpoint, error) {
	r := newRoster(c, path)
	for {
		h, err := c.Open(ctx, path, client.OpenOptions{Read: true})
		if err != nil {
			return nil, hold.Ended(ctx, err, "look up", path)
		}
		list, _, err := r.endpoints(ctx, h)
		hold.Leave(ctx, h)
		if !errors.Is(err, api.HandleClosed) { // deleted meanwhile: the next Open says so
			return list, hold.Ended(ctx, err, "look up", path)
		}
	}
}

// WatchEndpoints ranges over the whole sets of endpoints of a service, as Lookup returns them: the first at
// once, then one after each change. An absent service has no endpoints, and is waited for; a file may become
// a directory. The last item is the final error: of ctx, of the session, or an answer such as
// PermissionDenied. Each change costs one call, and three for each new or different endpoint.
//
// An ephemeral file goes with its owner: to keep it closed, WatchEndpoints watches its directory, which it
// needs the right to read. Each change of the file there costs three calls.
func WatchEndpoints(ctx context.Context, c *client.Client, path string) iter.Seq2[[]Endpoint, error] {
	return func(yield func([]Endpoint, error) bool) {
		w := &endpointWatch{c: c, path: path, roster: newRoster(c, path)}
		var last []Endpoint
		for told := false; ; {
			byName := w.ephemeral
			for now, err := range w.looks(ctx) {
				if err == nil && w.ephemeral != byName {
					break
				}
				if err == nil && told && slices.EqualFunc(last, now, Endpoint.Equal) {
					continue
				}
				told, last = true, now
				if !yield(slices.Clone(now), hold.Ended(ctx, err, "watch", path)) || err != nil {
					return
				}
			}
		}
	}
}

type endpointWatch struct {
	c         *client.Client
	path      string
	roster    *roster
	now       []Endpoint // at the last look
	ephemeral bool       // the node was an ephemeral file, which goes when its last handle closes
}

// looks ranges over the endpoints by a handle of the node, or, if that is an ephemeral file, of its directory.
func (w *endpointWatch) looks(ctx context.Context) iter.Seq2[[]Endpoint, error] {
	o := client.OpenOptions{Read: true, Events: append(childEvents(), api.EventContentsModified)}
	p, err := api.ParsePath(w.path)
	if err != nil || !w.ephemeral {
		return looks(ctx, w.c, w.path, o, func(s sight) ([]Endpoint, error) { return w.look(ctx, s.Handle) })
	}
	return looks(ctx, w.c, p.Parent().String(), o, func(s sight) ([]Endpoint, error) {
		if s.Handle == nil {
			return w.look(ctx, nil)
		}
		if !s.tells(p.Base()) {
			return w.now, nil
		}
		h, err := w.c.Open(ctx, w.path, client.OpenOptions{Read: true})
		if hold.Gone(err) || errors.Is(err, api.Exists) { // Exists: it is being removed
			return w.look(ctx, nil)
		}
		if err != nil {
			return nil, err
		}
		defer hold.Leave(ctx, h)
		return w.look(ctx, h)
	})
}

func (w *endpointWatch) look(ctx context.Context, h *client.Handle) ([]Endpoint, error) {
	w.now = nil
	if h == nil {
		return nil, nil
	}
	list, ephemeral, err := w.roster.endpoints(ctx, h)
	if err == nil {
		w.now, w.ephemeral = list, ephemeral
	}
	return list, err
}

// endpoints reads a service through its handle, and reports whether it is an ephemeral file, which goes when
// its last handle closes.
func (r *roster) endpoints(ctx context.Context, h *client.Handle) (list []Endpoint, ephemeral bool, err error) {
	stat, err := h.Stat(ctx)
	if err != nil {
		return nil, false, err
	}
	add := func(text []byte, published bool) {
		e, ok := parseEndpoint(text)
		if ok && (published || isHostPort(e.Address) || bytes.HasPrefix(bytes.TrimSpace(text), []byte("{"))) {
			list = append(list, e)
		}
	}
	if stat.Kind == api.File {
		text, _, err := h.Contents(ctx)
		add(text, false)
		return list, stat.Ephemeral, err
	}
	entries, err := r.look(ctx, h)
	for _, e := range entries {
		add(e.record.value(), e.record.session() != 0)
	}
	slices.SortStableFunc(list, func(a, b Endpoint) int { return strings.Compare(a.Address, b.Address) })
	return list, false, err
}
