package console

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

// Limits of streams of events.
const (
	maxStreams    = 16               // of all visitors,
	maxOwnStreams = 4                // and of one principal, where callers are identified
	maxStreamTime = 10 * time.Minute // then the browser reconnects, if its page is still open
	streamSign    = 10 * time.Second // without an event; then the stream sends a sign of life
	streamWrite   = 10 * time.Second // for a browser to take what is sent
	eventsPath    = "/console/events/stream"
)

type eventPage struct {
	Path   string
	Stream string // the address of its stream; empty without a path
}

func (c *Console) events(_ context.Context, _ *visitor, q *http.Request, p *page) error {
	content := eventPage{}
	p.Content = &content
	if strings.TrimSpace(q.URL.Query().Get("path")) == "" {
		return nil
	}
	path, err := c.parsePath(q.URL.Query().Get("path"))
	if err != nil {
		return err
	}
	content.Path, p.Title = path.String(), "Events of "+path.String()
	content.Stream = eventsPath + strings.TrimPrefix(pageURL("events", "path", path.String()), "/console/events")
	return nil
}

// told is an event for the browser.
type told struct {
	At          string `json:"at"`
	Kind        string `json:"kind"`
	On          string `json:"on"`
	Generation  string `json:"generation,omitempty"`
	Explanation string `json:"explanation,omitempty"`
}

// stream sends the events of a node as they come (text/event-stream), in a session of the visitor's that ends with it.
func (c *Console) stream(w http.ResponseWriter, q *http.Request) {
	who, err := c.guest(q)
	if err != nil {
		c.refuse(w, http.StatusForbidden, "nobody has logged in")
		return
	}
	path, err := c.parsePath(q.URL.Query().Get("path"))
	if err != nil {
		c.refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	ctx, cancel := context.WithTimeout(q.Context(), maxStreamTime)
	defer cancel()
	v, err := c.visitors.enter(ctx, who)
	if err != nil {
		c.refuse(w, http.StatusServiceUnavailable, err.Error())
		return
	}
	defer c.visitors.leave(v)
	out := &stream{w: w, to: http.NewResponseController(w), wall: c.cfg.Wall, path: path, last: q.Header.Get("Last-Event-ID")}
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	err = inSession(ctx, v, func(s *client.Client) error { return out.follow(ctx, s, who.Counts) })
	if err == nil && ctx.Err() == nil {
		err = api.Errorf(api.Unauthenticated, "your login does not count any more: load the page again")
	}
	if err != nil && ctx.Err() == nil {
		_ = out.send("problem", told{At: stamp(c.cfg.Wall()), Kind: "ended", On: path.String(), Explanation: explainProblem(err)}) // the browser may be gone
	}
}

type stream struct {
	w    http.ResponseWriter
	to   *http.ResponseController
	wall func() int64
	path api.Path
	last string // the time of the last event of an earlier stream; empty for a first one
}

// follow sends events until ctx ends or the visitor's login is no longer valid.
func (s *stream) follow(ctx context.Context, session *client.Client, counts func() bool) error {
	kinds := []api.EventKind{api.EventContentsModified, api.EventLockAcquired, api.EventLockVacant, api.EventConflictingLock, api.EventChildAdded, api.EventChildRemoved, api.EventChildModified}
	h, err := session.Open(ctx, s.path.String(), client.OpenOptions{Read: true, Events: kinds})
	if err != nil {
		return err
	}
	if err := s.send("begin", told{At: stamp(s.wall()), Kind: "following", On: s.path.String()}); err != nil {
		return err
	}
	if since, err := time.Parse(time.RFC3339, s.last); err == nil {
		gap := told{At: stamp(s.wall()), Kind: "interrupted", On: s.path.String(), Explanation: "What has happened since " + since.UTC().Format(time.RFC3339) + " is not shown: look at the node."}
		if err := s.send("event", gap); err != nil {
			return err
		}
	}
	for ctx.Err() == nil && counts() {
		wait, cancel := context.WithTimeout(ctx, streamSign)
		e, err := h.Next(wait)
		late := wait.Err() != nil
		cancel()
		switch {
		case err == nil && !counts():
			return nil
		case err == nil:
			err = s.send("event", toldOf(s.wall(), s.path, e))
		case late:
			err = s.write(": there is nothing new\n\n")
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func toldOf(now int64, path api.Path, e api.Event) told {
	t := told{At: stamp(now), Kind: e.Kind.String(), On: path.String(), Explanation: e.Explanation}
	if e.Child != "" {
		t.On += "/" + e.Child
	}
	if e.Generation != 0 {
		t.Generation = fmt.Sprint(uint64(e.Generation))
	}
	return t
}

// send sends one event. Its id is the time: after an interruption, the browser returns the last one.
func (s *stream) send(kind string, what told) error {
	text, err := json.Marshal(what) // one line, without <
	if err != nil {
		return fmt.Errorf("encode an event: %w", err)
	}
	return s.write("id: " + what.At + "\nevent: " + kind + "\ndata: " + string(text) + "\n\n")
}

// write sends text, in limited time.
func (s *stream) write(text string) error {
	if err := s.to.SetWriteDeadline(time.Unix(s.wall(), 0).Add(streamWrite)); err != nil {
		return fmt.Errorf("bound the time of a stream: %w", err)
	}
	if _, err := s.w.Write([]byte(text)); err != nil {
		return fmt.Errorf("send an event: %w", err)
	}
	if err := s.to.Flush(); err != nil {
		return fmt.Errorf("send an event: %w", err)
	}
	return nil
}
