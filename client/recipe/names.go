package recipe

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"iter"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

// Endpoint is where a service can be reached.
type Endpoint struct {
	Address  string            `json:"address"`            // host:port, most often
	Weight   int               `json:"weight,omitempty"`   // share of the work, for those who divide it; 0 is not said
	Metadata map[string]string `json:"metadata,omitempty"` // a version, a zone
}

// Equal reports whether two endpoints are the same.
func (e Endpoint) Equal(o Endpoint) bool {
	return e.Address == o.Address && e.Weight == o.Weight && maps.Equal(e.Metadata, o.Metadata)
}

// text returns the endpoint as it is published. No value makes it fail.
func (e Endpoint) text() []byte {
	if e.Weight == 0 && len(e.Metadata) == 0 {
		return []byte(e.Address)
	}
	text, _ := json.Marshal(e)
	return text
}

// parseEndpoint reads what is published: an address, or JSON of an Endpoint. There is none in what has
// no address.
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

// Publication is an endpoint that is published. Its methods may be called from several goroutines, but
// one Update after the other. Withdraw it, also when it has ended.
type Publication struct{ presence *Presence }

// Publish adds an endpoint to a service, which is the directory path, for as long as the session lasts:
// by Announce, under the name that the address is. What is said there of the name, and of a directory
// that is absent, holds here. Withdraw an endpoint before the server stops, so that nobody calls it any
// more; when a server dies, it is gone a lease later.
func Publish(ctx context.Context, c *client.Client, path string, e Endpoint) (*Publication, error) {
	if strings.TrimSpace(e.Address) == "" {
		return nil, &api.Error{Code: api.InvalidArgument, Op: "publish", Path: path, Message: "the endpoint has no address"}
	}
	p, err := announce(ctx, c, path, url.PathEscape(e.Address), sign(c).with(e.text()))
	if err != nil {
		return nil, ended(ctx, err, "publish", path)
	}
	return &Publication{p}, nil
}

// Context ends when the endpoint is not published any more (Presence.Context).
func (p *Publication) Context() context.Context { return p.presence.Context() }

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

// Lookup returns the endpoints of a service, by address. It is a directory, with a file for each: of
// Publish, or any other that holds an address, permanent or not; or it is a file that holds the one
// address, as that of an election does (Campaign, chubbyctl elect). Such a file keeps the address of a
// primary that is gone, until there is another; Observe tells. A file without an address is no endpoint.
// NotFound says that there is no such node.
//
// It costs two calls, and three for each endpoint of a directory, two of which go to the log: a program
// that asks often has WatchEndpoints running.
func Lookup(ctx context.Context, c *client.Client, path string) ([]Endpoint, error) {
	r := newRoster(c, path)
	for {
		h, err := c.Open(ctx, path, client.OpenOptions{Read: true})
		if err != nil {
			return nil, ended(ctx, err, "look up", path)
		}
		list, err := r.endpoints(ctx, h)
		leave(ctx, h)
		if !errors.Is(err, api.HandleClosed) { // deleted meanwhile: the next Open says so
			return list, ended(ctx, err, "look up", path)
		}
	}
}

// WatchEndpoints ranges over the whole sets of endpoints of a service, as Lookup returns them: the first
// at once, and then one whenever it has changed. A service that is not there has none, and is waited for;
// it may be a file now and a directory then. What comes last is the error that ended it: of ctx, of the
// session, or an answer such as PermissionDenied. Each change costs one call, and three for each endpoint
// that is new or different.
func WatchEndpoints(ctx context.Context, c *client.Client, path string) iter.Seq2[[]Endpoint, error] {
	return func(yield func([]Endpoint, error) bool) {
		r := newRoster(c, path)
		var before []Endpoint
		first := true
		kinds := append(childEvents(), api.EventContentsModified)
		for s, err := range follow(ctx, c, path, client.OpenOptions{Read: true, Events: kinds}) {
			var now []Endpoint
			if err == nil && s.Handle != nil {
				if now, err = r.endpoints(ctx, s.Handle); errors.Is(err, api.HandleClosed) {
					continue // the next sight knows
				}
			}
			if err == nil && !first && slices.EqualFunc(before, now, Endpoint.Equal) {
				continue
			}
			before, first = now, false
			if !yield(slices.Clone(now), ended(ctx, err, "watch", path)) || err != nil {
				return
			}
		}
	}
}

// endpoints reads a service through a handle of it.
func (r *roster) endpoints(ctx context.Context, h *client.Handle) ([]Endpoint, error) {
	stat, err := h.Stat(ctx)
	if err != nil {
		return nil, err
	}
	var list []Endpoint
	add := func(text []byte) {
		if e, ok := parseEndpoint(text); ok {
			list = append(list, e)
		}
	}
	if stat.Kind == api.File {
		text, _, err := h.Contents(ctx)
		add(text)
		return list, err
	}
	entries, err := r.look(ctx, h)
	for _, e := range entries {
		add(e.record.value())
	}
	slices.SortStableFunc(list, func(a, b Endpoint) int { return strings.Compare(a.Address, b.Address) })
	return list, err
}
