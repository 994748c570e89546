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
		return nil, ended(ctx, err, "publish", path)
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
				if !yield(slices.Clone(now), ended(ctx, err, "watch", path)) || err != nil {
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
		if gone(err) || errors.Is(err, api.Exists) { // Exists: it is being removed
			return w.look(ctx, nil)
		}
		if err != nil {
			return nil, err
		}
		defer leave(ctx, h)
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
