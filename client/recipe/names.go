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
	"unicode"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

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
type Publication struct{ presence *Presence }

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
		return nil, ended(ctx, err, "publish", path)
	}
	return &Publication{p}, nil
}

// Context ends when the endpoint is no longer published (Presence.Context).
func (p *Publication) Context() context.Context { return p.presence.Context() }

// Done is closed when Context ends.
func (p *Publication) Done() <-chan struct{} { return p.presence.Done() }

// Err checks the clock, and returns why the endpoint is no longer published, or nil (Presence.Err).
func (p *Publication) Err() error { return p.presence.Err() }

// Path returns the path of the endpoint's file.
func (p *Publication) Path() string { return p.presence.Path() }

// Update changes the weight and the metadata. For another address, publish another endpoint.
func (p *Publication) Update(ctx context.Context, weight int, metadata map[string]string) error {
	p.presence.mu.Lock()
	e, _ := parseEndpoint(p.presence.record.value())
	p.presence.mu.Unlock()
	e.Weight, e.Metadata = weight, metadata
	return p.presence.Update(ctx, e.text())
}

// Withdraw removes the endpoint (Presence.Withdraw).
func (p *Publication) Withdraw(ctx context.Context) error { return p.presence.Withdraw(ctx) }

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
			return nil, ended(ctx, err, "look up", path)
		}
		list, _, err := r.endpoints(ctx, h)
		leave(ctx, h)
		if !errors.Is(err, api.HandleClosed) { // deleted meanwhile: the next Open says so
			return list, ended(ctx, err, "look up", path)
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
		w := &endpointWatch{c: c, path: path, roster: newRoster(c, path), yield: yield}
		for watch := w.node; watch != nil; {
			watch = watch(ctx)
		}
	}
}

type endpointWatch struct {
	c      *client.Client
	path   string
	roster *roster
	yield  func([]Endpoint, error) bool
	told   bool // an item was reported
	last   []Endpoint
}

// way is a way to watch. It returns the next way, nil at the end.
type way func(ctx context.Context) way

// tell reports a changed set, or an error. It returns whether to go on.
func (w *endpointWatch) tell(ctx context.Context, now []Endpoint, err error) bool {
	if err == nil && w.told && slices.EqualFunc(w.last, now, Endpoint.Equal) {
		return true
	}
	w.told, w.last = true, now
	return w.yield(slices.Clone(now), ended(ctx, err, "watch", w.path)) && err == nil
}

// node watches by a handle of the node, until it proves to be an ephemeral file.
func (w *endpointWatch) node(ctx context.Context) way {
	kinds := append(childEvents(), api.EventContentsModified)
	for s, err := range follow(ctx, w.c, w.path, client.OpenOptions{Read: true, Events: kinds}) {
		var now []Endpoint
		if err == nil && s.Handle != nil {
			var ephemeral bool
			if now, ephemeral, err = w.roster.endpoints(ctx, s.Handle); errors.Is(err, api.HandleClosed) {
				continue // the next sight knows
			}
			if ephemeral {
				return w.name
			}
		}
		if !w.tell(ctx, now, err) {
			return nil
		}
	}
	return nil
}

// name watches by a handle of the node's directory, until the node is no longer an ephemeral file.
func (w *endpointWatch) name(ctx context.Context) way {
	p, err := api.ParsePath(w.path)
	if err != nil {
		w.tell(ctx, nil, err)
		return nil
	}
	for s, err := range follow(ctx, w.c, p.Parent().String(), client.OpenOptions{Read: true, Kind: api.Directory, Events: childEvents()}) {
		var now []Endpoint
		if err == nil && s.Handle != nil {
			if !s.tells(p.Base()) {
				continue
			}
			var there, ephemeral bool
			if now, there, ephemeral, err = w.peek(ctx); err == nil && there && !ephemeral {
				return w.node
			}
		}
		if !w.tell(ctx, now, err) {
			return nil
		}
	}
	return nil
}

func (w *endpointWatch) peek(ctx context.Context) (now []Endpoint, there, ephemeral bool, err error) {
	h, err := w.c.Open(ctx, w.path, client.OpenOptions{Read: true})
	if err == nil {
		defer leave(ctx, h)
		now, ephemeral, err = w.roster.endpoints(ctx, h)
	}
	if gone(err) || errors.Is(err, api.Exists) { // Exists: it is being removed
		return nil, false, false, nil
	}
	return now, true, ephemeral, err
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
